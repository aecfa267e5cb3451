# Source this. A wait ends once nothing progresses, not because a clock says so; RAFTLOG_PATIENCE multiplies the limit.

# patient SECONDS: a fixed limit, multiplied.
patient() { awk -v s="$1" -v p="${RAFTLOG_PATIENCE:-1}" 'BEGIN { printf "%d\n", s * p }'; }

# wait_until WHAT SEEN COMMAND [ARG ...]: look every second until COMMAND succeeds; fail once what SEEN prints (a command
# line that describes the state: health, bytes of logs, CPU time) has been the same for 60 looks, or after 900 in all.
wait_until() {
  local what=$1 seen=$2 still=0 looks=0 last= now limit; limit=$(patient 60); shift 2
  until "$@" >/dev/null 2>&1; do
    now=$(eval "$seen" 2>&1 || true)
    if [ "$now" = "$last" ]; then still=$((still + 1)); else still=0; last=$now; fi
    looks=$((looks + 1))
    if [ "$still" -ge "$limit" ] || [ "$looks" -ge $((15 * limit)) ]; then
      echo "$what: nothing moved for $still of $looks looks; last seen: $last" >&2; return 1
    fi
    sleep 1
  done
}
