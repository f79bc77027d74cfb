# Makes an authority, and certificates of the server and of the gateway.
set -e
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=authority -keyout ca.key -out ca.crt 2>openssl.log
for name in server gateway; do
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=$name -keyout $name.key -out $name.csr 2>>openssl.log
  echo "subjectAltName=IP:127.0.0.1" > $name.ext
  openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile $name.ext -out $name.crt 2>>openssl.log
done
