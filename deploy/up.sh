#!/bin/sh
# `make up`: everything of compose.yaml, ready to be asked. Arguments go to `docker compose up`; default: --build.
set -eu
cd "$(dirname "$0")/.."

if ! docker compose version >/dev/null 2>&1 || ! docker info >/dev/null 2>&1; then
  echo "No Docker with compose here: starting Redis and the six services as processes (the same as \`make local\`)." >&2
  exec "${MAKE:-make}" local
fi

umask 077
[ -e .env ] || cp .env.example .env
# Every empty password gets a value of its own; what is set stays.
while IFS= read -r line; do
  case $line in
    *PASSWORD*= | *SECRET=) echo "$line$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')" ;;
    *) printf '%s\n' "$line" ;;
  esac
done <.env >.env.new
if cmp -s .env .env.new; then rm .env.new; else mv .env.new .env; echo "Passwords made up: see .env" >&2; fi

docker compose up --detach --wait --wait-timeout 600 "${@:---build}"

redis=$(docker compose port redis 6379)
echo "
Redis      redis://client:\$REDIS_PASSWORD_CLIENT@$redis/0   (passwords: .env)"
grafana=$(docker compose port grafana 3000 2>/dev/null) && echo "Grafana    http://$grafana   admin, \$GRAFANA_PASSWORD"
echo "
Documents  docker compose run --rm -v \"\$PWD/samples/handbook:/documents:ro\" cairn ingest /documents
Ask        docker compose run --rm cairn ask \"How many days do I have to return a tent?\"
More       docker compose up -d --no-recreate --scale grader=4
Stop       docker compose down   (data stays; docs/operations.md tells more)"
