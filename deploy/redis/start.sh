#!/bin/sh
# Starts Redis with one user per service. A user's password comes from REDIS_PASSWORD_<USER>; the file that Redis reads
# holds its hash only, in memory. A user without a password stops the start: it must not be open to everybody.
set -eu
umask 077
while read -r word user rights; do
  [ "$word" = user ] || continue
  if [ "$user" != default ]; then
    password=$(printenv "REDIS_PASSWORD_$(echo "$user" | tr '[:lower:]' '[:upper:]')") || password=
    [ -n "$password" ] || { echo "no password for the Redis user $user: set it in .env" >&2; exit 1; }
    rights="#$(printf %s "$password" | sha256sum | cut -d' ' -f1) $rights"
  fi
  echo "user $user $rights"
done </etc/cairn/users.acl >/run/redis/users.acl
exec redis-server "$@" --aclfile /run/redis/users.acl
