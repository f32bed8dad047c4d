#!/bin/sh
# backup.sh save DIRECTORY      Redis as it runs, then the index: who serves it stops for the copy, questions wait.
# backup.sh restore DIRECTORY   Everything stops; what Redis and the index hold is replaced.
# DIRECTORY gets redis.tar and index.tar. The index is Qdrant's server where it runs, else the retriever's own.
set -eu
[ $# = 2 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
directory=$2

redis() {
  docker compose exec -T redis sh -c 'REDISCLI_AUTH=$REDIS_PASSWORD_ADMIN exec redis-cli --user admin "$@"' redis-cli "$@"
}
in_volume() { # SERVICE COMMAND…: in a container of its own, with the service's volume
  service=$1
  shift
  docker compose run --rm --no-deps -T --entrypoint "" "$service" "$@"
}
if [ -n "$(docker compose ps --all --quiet qdrant 2>/dev/null)" ]; then
  index=qdrant files=/qdrant/storage
else
  index=retriever files=/data
fi

case $1 in
save)
  umask 077 # questions and documents are in it
  mkdir -p "$directory"
  # Files of the append-only log only grow while no rewrite replaces them; a last half-written command is dropped at load.
  redis CONFIG SET auto-aof-rewrite-percentage 0 >/dev/null
  trap 'redis CONFIG SET auto-aof-rewrite-percentage 100 >/dev/null' EXIT
  while redis INFO persistence | grep -qE 'aof_rewrite_(in_progress|scheduled):1'; do sleep 1; done
  docker compose exec -T redis tar -C /data -cf - appendonlydir >"$directory/redis.tar"
  docker compose stop "$index"
  in_volume "$index" tar -C "$files" -cf - . >"$directory/index.tar"
  docker compose start "$index"
  ;;
restore)
  [ -s "$directory/redis.tar" ] && [ -s "$directory/index.tar" ] || { echo "no backup in $directory" >&2; exit 1; }
  docker compose stop
  in_volume redis sh -ec 'rm -rf /data/appendonlydir; tar -C /data -xf -' <"$directory/redis.tar"
  in_volume "$index" sh -ec 'find "$0" -mindepth 1 -delete; tar -C "$0" -xf -' "$files" <"$directory/index.tar"
  docker compose up --detach --no-build --wait
  ;;
*) exit 2 ;;
esac
