"""An HTTP/2 server in the clear (the library `h2`) that says what it has seen, trailers included."""

import json
import socket
import threading

import h2.config
import h2.connection
import h2.errors
import h2.events


class H2Upstream:
    """Answers each request with JSON and trailers; does what paths tell it to."""

    def __init__(self, port):
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            stream, _ = self.listener.accept()
            threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream):
        # Nothing is checked or repaired: what came is what is shown.
        config = h2.config.H2Configuration(client_side=False, header_encoding="latin-1", validate_inbound_headers=False)
        connection = h2.connection.H2Connection(config)
        connection.initiate_connection()
        stream.sendall(connection.data_to_send())
        requests = {}
        try:
            while octets := stream.recv(1 << 16):
                for event in connection.receive_data(octets):
                    self._handle(connection, requests, event)
                stream.sendall(connection.data_to_send())
                if connection.state_machine.state == h2.connection.ConnectionState.CLOSED:
                    break
        except (OSError, h2.exceptions.ProtocolError):
            pass
        stream.close()

    def _handle(self, connection, requests, event):
        if isinstance(event, h2.events.RequestReceived):
            requests[event.stream_id] = {"headers": event.headers, "trailers": [], "bytes": 0}
            path = dict(event.headers)[":path"]
            if "reset" in path:
                connection.reset_stream(event.stream_id, h2.errors.ErrorCodes.INTERNAL_ERROR)
            elif "goaway" in path:
                connection.close_connection(h2.errors.ErrorCodes.INTERNAL_ERROR)
            elif "half" in path:
                connection.send_headers(event.stream_id, [(":status", "200")])
                connection.send_data(event.stream_id, b"half")
                connection.reset_stream(event.stream_id, h2.errors.ErrorCodes.INTERNAL_ERROR)
        elif isinstance(event, h2.events.DataReceived):
            requests[event.stream_id]["bytes"] += len(event.data)
            connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.TrailersReceived):
            requests[event.stream_id]["trailers"] = event.headers
        elif isinstance(event, h2.events.StreamEnded):
            seen = requests[event.stream_id]
            if any(word in dict(seen["headers"])[":path"] for word in ("reset", "goaway", "half")):
                return
            body = json.dumps(seen).encode()
            connection.send_headers(event.stream_id, [(":status", "200"), ("content-type", "application/json")])
            connection.send_data(event.stream_id, body)
            connection.send_headers(event.stream_id, [("x-sum", "5"), ("x-ratelimit-limit", "0")], end_stream=True)
