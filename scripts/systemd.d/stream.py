"""An upstream whose answers have no end."""

import socket
import threading
import time


def answer(client):
    client.recv(65536)
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    try:
        while True:
            client.sendall(b"1\r\nx\r\n")
            time.sleep(0.1)
    except OSError:
        client.close()


with socket.create_server(("127.0.0.1", 9000)) as listener:
    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
