# Starts the servers of a guest: Apache httpd on port 8080, nginx on 8081, and three servers of iperf3
# beside the first, which listens on port 5201. The files of the web servers are named by their size in kB.
set -e
# The guest agent's umask would make the files unreadable for httpd, which does not run as root.
umask 022
mkdir -p /srv /run/nginx /var/log/nginx /var/lib/nginx
for kb in 1 10 30 50 70 100 200; do
    head -c $((kb * 1000)) /dev/urandom >/srv/$kb
done
cat >/run/nginx.conf <<'TEXT'
user root;
worker_processes 1;
pid /run/nginx.pid;
error_log /run/nginx.log;
events { worker_connections 1024; }
http {
    access_log off;
    sendfile on;
    keepalive_timeout 0;
    client_body_temp_path /run/nginx/body;
    proxy_temp_path /run/nginx/proxy;
    fastcgi_temp_path /run/nginx/fastcgi;
    uwsgi_temp_path /run/nginx/uwsgi;
    scgi_temp_path /run/nginx/scgi;
    server { listen 8081; root /srv; }
}
TEXT
cat >/run/httpd.conf <<'TEXT'
ServerRoot /usr/lib/apache2
ServerName lab
LoadModule mpm_event_module modules/mod_mpm_event.so
LoadModule authz_core_module modules/mod_authz_core.so
PidFile /run/httpd.pid
DefaultRuntimeDir /run
ErrorLog /run/httpd.log
User www-data
Group www-data
Listen 8080
KeepAlive Off
DocumentRoot /srv
<Directory /srv>
    Require all granted
</Directory>
TEXT
for port in 5202 5203 5204; do
    iperf3 --server --daemon --port $port
done
nginx -c /run/nginx.conf
apache2 -f /run/httpd.conf
for i in $(seq 100); do
    [ "$(ss -Htln '( sport = :8080 or sport = :8081 )' | wc -l)" -lt 2 ] || exit 0
    sleep 0.1
done
cat /run/nginx.log /run/httpd.log
exit 1
