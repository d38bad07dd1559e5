#!/bin/bash
# trefoil board over HTTP: what it answers, to whom, and what it does not let itself be made
# to do. Requests are written by hand, so that they can be wrong.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
crowd=$(dirname "$trefoil")/tests/board_crowd
export XDG_STATE_HOME=$work/state
token_file=$XDG_STATE_HOME/trefoil/board.token
auth= # the header with the token, of every proper request
umask 077

# -- helpers -----------------------------------------------------------------------------------

# start_board ARGUMENTS...: in the background, its port in $port, its first line in $address.
start_board() {
    "$trefoil" board --port 0 "$@" >board.out 2>board.err &
    board=$!
    for _ in $(seq 100); do
        address=$(head -1 board.out)
        [ -n "$address" ] && break
        kill -0 "$board" 2>/dev/null || fail "the board ended: $(cat board.err)"
        sleep 0.1
    done
    port=$(sed -E 's|.*:([0-9]+)/.*|\1|' <<<"$address")
    [[ $port =~ ^[0-9]+$ ]] || fail "no address in '$address'"
    token=$(sed -nE 's/.*[?]token=([0-9a-zA-Z]*)$/\1/p' <<<"$address")
    auth=${token:+Authorization: Bearer $token\\r\\n}
}

stop_board() {
    kill "$board"
    wait "$board" || fail "the board ended with $?: $(cat board.err)"
    board=
}

trap '' PIPE
board=
trap '[ -z "$board" ] || kill "$board" 2>/dev/null; rm -rf "$work"' EXIT # also of a test that fails

# ask TEXT: the answer to these bytes, up to the end of the connection, in answer.txt.
ask() {
    exec 7<>"/dev/tcp/127.0.0.1/$port" || fail "no connection to port $port"
    printf '%b' "$1" >&7 2>/dev/null || true # a refusal may come before all was sent
    timeout 20 cat <&7 >answer.txt 2>/dev/null || [ $? != 124 ] || fail "no end of the answer to '$1'"
    exec 7>&-
}

# get PATH [MORE LINES]: by a proper request. plain_get: without the token.
plain_get() {
    ask "GET $1 HTTP/1.1\r\nHost: 127.0.0.1:$port\r\nConnection: close\r\n${2:-}\r\n"
}
get() { plain_get "$1" "$auth${2:-}"; }

status() { head -1 answer.txt | cut -d' ' -f2; }

must_be() { # STATUS WHAT
    [ "$(status)" = "$1" ] || fail "$2: $(head -1 answer.txt), not $1"
}

must_have() { # TEXT WHAT
    grep -qaF -- "$1" answer.txt || fail "$2: no '$1' in $(tail -c 600 answer.txt)"
}

must_lack() {
    ! grep -qaF -- "$1" answer.txt || fail "$2: there is '$1'"
}

# wait_for TEXT PATH: until the answer has it, 15 s at most.
wait_for() {
    for _ in $(seq 75); do
        get "$2"
        grep -qaF -- "$1" answer.txt && return
        sleep 0.2
    done
    fail "no '$1' at $2: $(tail -c 600 answer.txt)"
}

# -- runs to look at ---------------------------------------------------------------------------

mkdir -p runs/one 'runs/<b>two'
{
    echo '{"step": 0, "time": 1700000000.0, "event": "start", "steps_total": 3000, "plan_bytes": [5, 6]}'
    awk 'BEGIN { for (i = 1; i <= 3000; i++)
        printf "{\"step\": %d, \"time\": %d.5, \"loss\": %.9g, \"tokens\": %d}\n",
            i, 1700000000 + i, i == 1500 ? 77 : 9 - i / 1000, i * 100 }'
    echo '{"step": 3000, "eval_loss": 6.5}'
    echo '{"step": 3000, "event": "sample", "prompt": "</script><script>", "text": "a\u0001b"}'
    echo '{"step": 3000, "event": "end"}'
} >runs/one/metrics.jsonl
echo '{"step": 1, "loss": 2}' >'runs/<b>two/metrics.jsonl'
printf 'PreTraining:\n  max_steps: 3000\n  seed: 1\n' >runs/one/config.yaml
printf 'PreTraining:\n  max_steps: 3000\n  seed: 2\n' >'runs/<b>two/config.yaml'
echo secret-of-this-machine >secret.txt

# -- without a server ----------------------------------------------------------------------------

refuses() { # PATTERN ARGUMENTS...
    local pattern=$1
    shift
    "$trefoil" board "$@" >out.txt 2>&1
    local code=$?
    [ $code = 2 ] || fail "board $*: exit code $code"
    grep -q -- "$pattern" out.txt || fail "board $*: $(cat out.txt)"
}

shows_without_a_server() {
    refuses "'nowhere' is not a directory" nowhere
    refuses 'DIR is missing'
    mkdir empty
    refuses 'holds no run' --save page.html empty
    "$trefoil" board --save page.html runs || fail "no page was saved"
    grep -q 'id="saved">{"saved_at"' page.html || fail "the saved page has no data"
    "$trefoil" top runs >top.txt || fail "top ended with $?"
    grep -q 'step 3000/3000 (100 %)' top.txt || fail "top: $(cat top.txt)"
    ! grep -q $'\033' top.txt || fail "top without a terminal has escapes"
}

if grep -qa 'shows the same in a terminal, and --save' "$trefoil"; then
    refuses 'built without the board.*trefoil top shows the same' runs
    shows_without_a_server
    exit 0
fi

# -- answers -----------------------------------------------------------------------------------

start_board runs
grep -q "ssh -L $port:127.0.0.1:$port " board.out || fail "no ssh line: $(cat board.out)"
wait_for '"step":3000' /api/runs
must_have '"state":"finished"' "a run that ended"
must_have '\u003cb\u003etwo' "a name with HTML in it is text"
must_lack '<b>' "a name with HTML in it is text"
get '/api/series?run=1&y=loss&x=tokens&n=100'
must_be 200 series
must_have '"count":3000' "all points are counted"
must_have ',77,' "the highest loss is in a bucket"
get '/api/series?run=1&y=loss&from=10&to=12'
must_have '{"x":[10,11,12],"min":[8.98999977,8.9890003' "few points come as they are"
get '/api/series?run=1&y=eval_loss'
must_have '"mean":[6.5]' "an evaluation"
get '/api/diff?runs=0,1'
must_have '[{"key":"seed","values":["2","1"]}]' "what differs"
get '/api/config?run=1'
must_have '["seed","1"]' "the configuration"
get '/api/samples?run=1'
must_have '"prompt":' "a sampled text"
get '/api/ranks?run=1'
must_have '"plan_bytes":[5,6]' "the plan"
get /metrics
must_be 200 "for Prometheus"
must_have 'Content-Type: text/plain; version=0.0.4' "for Prometheus"
must_have 'trefoil_step{run="runs/one"} 3000' "a sample of a run"
must_have 'run="runs/<b>two"' "a run by its directory"
get '/save?runs=1'
must_be 200 "a saved page"
must_have '<script type="application/json" id="saved">{"saved_at"' "a saved page has its data"
must_lack '</script><script>"' "a saved page whose data would end its script"
must_lack 'src="board.js"' "a saved page that asks for more"
must_have "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; " \
    "a saved page that may ask nobody"
get / 'Accept-Encoding: gzip\r\n'
must_have 'Content-Encoding: gzip' "the page is packed"
get /
must_have '<!DOCTYPE html>' "the page, for who does not unpack"
for header in "Content-Security-Policy: default-src 'none'" 'X-Content-Type-Options: nosniff' \
    'X-Frame-Options: DENY' 'Referrer-Policy: no-referrer' 'Cache-Control: no-store' \
    'Cross-Origin-Resource-Policy: same-origin' 'Cross-Origin-Opener-Policy: same-origin'; do
    must_have "$header" "a header that keeps the page in"
done
must_lack 'Access-Control' "no other site may read"
ask "HEAD /api/runs HTTP/1.1\r\nHost: localhost\r\n${auth}Connection: close\r\n\r\n"
must_be 200 HEAD
must_lack '"run"' "HEAD has no body"

# -- what is refused -----------------------------------------------------------------------------

for host in evil.example evil.example:$port 127.0.0.1.evil.example 192.0.2.1 '' 'localhost:x' \
    localhost:123456 '[::1' '[::1]x' "$(hostname)x"; do
    ask "GET /api/runs HTTP/1.1\r\nHost: $host\r\n${auth}Connection: close\r\n\r\n"
    [ "$(status)" = 403 ] || [ "$(status)" = 400 ] || fail "Host '$host': $(head -1 answer.txt)"
    must_lack '"run"' "Host '$host'"
done
ask "GET /api/runs HTTP/1.0\r\n${auth}\r\n"
must_be 403 "no Host at all"
for host in localhost "localhost:9" "[::1]:$port" 127.0.0.1; do
    ask "GET /api/runs HTTP/1.1\r\nHost: $host\r\n${auth}Connection: close\r\n\r\n"
    must_be 200 "Host '$host'"
done
get /api/runs 'Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n'
must_be 403 "a page of another site"
get /api/runs 'Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n'
must_be 200 "a link on a page of another site"
for method in POST PUT DELETE OPTIONS TRACE PATCH BREW; do
    ask "$method /api/runs HTTP/1.1\r\nHost: localhost\r\n${auth}Content-Length: 0\r\nConnection: close\r\n\r\n"
    [ "$(status)" != 200 ] || fail "$method was answered"
done
for path in /../secret.txt /secret.txt '/%2e%2e/secret.txt' '//secret.txt' /runs/one/metrics.jsonl \
    '/api/config?run=../../secret.txt' '/api/config?run=%2Fetc%2Fpasswd' '/board.css/../secret.txt' \
    '/api/series?run=1&y=../loss' '/save?runs=../1' '/api/series?run=99' '/api/series?run=-1' \
    '/api/series?run=1&n=0' '/api/series?run=1&n=1e9' '/api/series?run=1&x=loss' \
    '/api/series?run=1&from=abc' '/api/diff?runs=0,,' '/api/diff?runs=99999999999999999999'; do
    get "$path"
    [[ $(status) = 4?? ]] || fail "$path: $(head -1 answer.txt)"
    must_lack secret-of "$path"
    must_lack root: "$path"
done
for path in /%00 '/api/runs%00.html' '/api/config?run=1%00x' "/api/runs?token=$token%00x" \
    /api%2Fruns '/%2e%2e/api/runs' /api/%72uns; do
    get "$path"
    [ "$(status)" = 400 ] || [ "$(status)" = 404 ] || fail "$path: $(head -1 answer.txt)"
done
get /api/runs "Host: 127.0.0.1:$port\r\n"
must_be 400 "two headers Host"
get /api/runs 'host: evil.example\r\n'
must_be 400 "two headers Host, one of them another"
get /api/runs "$auth"
must_be 400 "two headers Authorization"
get "/api/runs?token=$token&token=$token"
must_be 400 "two parameters token"
get /api/runs 'Content-Length: 1\r\n'
must_be 400 "a request with a body"
for n in 65 300 3000; do
    get "/api/runs?$(printf '&%.0s' $(seq "$n"))"
    must_be 414 "$n parameters"
done
for n in 200 210 220 1000; do
    get /api/runs "$(printf 'X%d: 1\\r\\n' $(seq "$n"))"
    must_be 431 "$n headers"
    get /api/runs "Cookie: $(printf 'a%d=1; ' $(seq "$n"))b=1\r\n"
    must_be 431 "$n cookies"
done
long=$(printf 'a%.0s' $(seq 40000))
get "/${long:0:16000}"
must_be 431 "a request that leaves no space for an answer"
ask "GET /$long HTTP/1.1\r\nHost: localhost\r\n\r\n"
[ "$(status)" != 200 ] || fail "a request of 40 kB was answered"
ask "\0\0\0\r\n\r\n"
get /api/runs
must_be 200 "after all that"

# -- what a client can make it hold ----------------------------------------------------------------

"$crowd" "$port" 1000 12 >crowd.out &
crowd_pid=$!
sleep 4
for _ in 1 2 3; do
    timeout 20 bash -c "exec 7<>/dev/tcp/127.0.0.1/$port
        printf 'GET /api/runs HTTP/1.1\r\nHost: localhost\r\n${auth}Connection: close\r\n\r\n' >&7
        cat <&7" >answer.txt 2>/dev/null && [ "$(status)" = 200 ] && break
done
must_be 200 "a reader among 1000 clients that only take room"
fds=$(find "/proc/$board/fd" | wc -l)
[ "$fds" -lt 200 ] || fail "the board has $fds descriptors"
wait "$crowd_pid"
memory=$(awk '/VmHWM/ { print $2 }' "/proc/$board/status")
if ! grep -qaE '__(a|t)san_init' "$trefoil"; then # sanitizers keep what was freed
    [ "$memory" -lt 60000 ] || fail "the board took $memory kB"
fi

# -- changes -------------------------------------------------------------------------------------

opened=
for _ in {1..20}; do # the crowd's connections may not all have ended yet
    exec 8<>"/dev/tcp/127.0.0.1/$port"
    (printf 'GET /api/stream?token=%s HTTP/1.1\r\nHost: localhost\r\n\r\n' "$token" >&8) || true
    timeout 10 grep -qam1 'data: {"runs":' <&8 && opened=1 && break
    sleep 0.5
done 2>/dev/null
[ "$opened" ] || fail "no event for a page that was opened"
echo '{"step": 2, "loss": 1.5}' >>'runs/<b>two/metrics.jsonl'
timeout 30 grep -qam1 '"loss":1.5,' <&8 || fail "no event for a new line"
exec 8>&-
mkdir runs/three
echo '{"step": 7, "loss": 1}' >runs/three/metrics.jsonl
wait_for '"name":"three"' /api/runs
head -c 100000000 /dev/zero | tr '\0' 'x' >>runs/three/metrics.jsonl
printf '\n{"step": 8, "loss": 1}\n{"step": 9, "lo' >>runs/three/metrics.jsonl
wait_for '1 line is too long and left out' /api/runs
must_have '"step":8,' "what follows a line of 100 MB"
stop_board

# -- who may read --------------------------------------------------------------------------------

# The token is the same at every start and on every address, and its owner's alone.
first=$token
[[ $first =~ ^[0-9a-f]{32}$ ]] || fail "no token in the address: $(cat board.out)"
[ "$(cat "$token_file")" = "$first" ] || fail "$token_file does not hold the token"
[ "$(stat -c %a "$token_file")" = 600 ] || fail "$token_file: $(stat -c %a "$token_file")"
grep -qF "the token is in '$token_file'" board.out || fail "no file named: $(cat board.out)"
! grep -rqF "$first" runs page.html 2>/dev/null || fail "the token is in a run or a saved page"
start_board --listen 0.0.0.0 runs
[ "$token" = "$first" ] || fail "another token after a start: '$address'"
plain_get /api/runs
must_be 401 "without a token"
# shellcheck disable=SC2016 # the name of the variable, not its value
must_have 'in $XDG_STATE_HOME/trefoil/board.token of the user' "where the token is"
must_have 'WWW-Authenticate: Bearer' "how it is given"
plain_get / ''
must_be 401 "the page without a token"
for wrong in "${token%?}" "${token}0" "$token$token" "${token%?}x" "$(tr 0-9a-f 1-9a-f0 <<<"$token")" ''; do
    plain_get "/api/runs?token=$wrong"
    must_be 401 "with the wrong token '$wrong'"
    plain_get /api/runs "Cookie: trefoil_board_$port=$wrong\r\n"
    must_be 401 "with the wrong cookie '$wrong'"
    plain_get /api/runs "Authorization: Bearer $wrong\r\n"
    must_be 401 "with the wrong header '$wrong'"
done
for path in /board.js /board.css /api/stream /api/series /metrics /save /nowhere; do
    plain_get "$path"
    must_be 401 "$path without a token"
done
plain_get "/api/runs?token=$token"
must_be 200 "with the token"
plain_get "/?token=$token"
must_be 303 "the page with the token"
must_have "Set-Cookie: trefoil_board_$port=$token; Path=/; HttpOnly; SameSite=Strict" "a cookie"
plain_get /api/runs "Cookie: trefoil_board_$port=$token\r\n"
must_be 200 "with the cookie"
plain_get /api/runs "authorization: bearer $token\r\n"
must_be 200 "with the header"
plain_get /api/runs "Authorization: Basic $token\r\n"
must_be 401 "with a header of another kind"
ask "GET /api/runs?token=$token HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
must_be 403 "another name, with the token"
ask "GET /api/runs?token=$token HTTP/1.1\r\nHost: $(hostname).evil.example\r\nConnection: close\r\n\r\n"
must_be 403 "a name that begins like this machine's, with the token"
ask "GET /api/runs?token=$token HTTP/1.1\r\nHost: $(hostname):$port\r\nConnection: close\r\n\r\n"
must_be 200 "this machine's name, with the token"
stop_board

start_board --token_file mine/token runs
[ "$token" = "$(cat mine/token)" ] || fail "not the token of --token_file: '$address'"
plain_get "/api/runs?token=$first"
must_be 401 "the token of another file"
stop_board
start_board --token 0123456789abcdefX runs
! tr '\0' ' ' <"/proc/$board/cmdline" | grep -q 0123456789 || fail "ps shows the token"
plain_get "/api/runs?token=0123456789abcdefX"
must_be 200 "the token of --token"
stop_board
start_board --no_token runs
grep -q 'every user of this machine can read' board.err || fail "--no_token: $(cat board.err)"
[ -z "$token" ] || fail "--no_token: '$address'"
plain_get /api/runs
must_be 200 "--no_token"
stop_board
TREFOIL_BOARD=1 start_board runs # as pretrain --board does; not on a terminal
[ -z "$token" ] || fail "the token in a run's log: '$address'"
grep -qF "the token is in '$token_file'" board.out || fail "no file named: $(cat board.out)"
stop_board
XDG_STATE_HOME=/dev/null start_board runs
grep -q 'the token cannot be kept' board.err || fail "a token that is not kept: $(cat board.err)"
[[ -n $token && $token != "$first" ]] || fail "no token of its own: '$address'"
plain_get /api/runs
must_be 401 "without a token that is not kept"
stop_board
(umask 022 && : >board.out && chmod 644 board.out)
start_board runs
grep -q 'a file of mode 644' board.err || fail "a file that others read: $(cat board.err)"
stop_board

# -- words ---------------------------------------------------------------------------------------

refuses "'here' is not an address" --listen here runs
refuses 'must have 16 to' --token short runs
refuses 'names no file' --token_file '' runs
refuses 'exclude each other' --token 0123456789abcdef --no_token runs
chmod 644 "$token_file"
refuses 'other users may know the token' runs
chmod 600 "$token_file"
echo short >"$token_file"
refuses "the token in '$token_file' must have 16" runs
refuses 'is not a file' --token_file runs runs
refuses '0 to 65535' --port 70000 runs
shows_without_a_server
exit 0
