# shellcheck shell=bash disable=SC2034 # variables are for those who source this
# What contrib/quickstart and contrib/check share: sourced with the working directory at the top of the source tree.

build_packages="autoconf automake gcc libc6-dev libcurl4-openssl-dev libevent-dev libjansson-dev libsodium-dev libyaml-dev
	make pkgconf uthash-dev"

jobs=$(nproc 2>/dev/null || echo 2)

say() {
	printf '==> %s\n' "$*"
}

die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

# quietly LOG COMMAND...: the output goes to LOG; its end is shown if the command fails.
quietly() {
	quietly_log=$1
	shift
	quietly_status=0
	"$@" >"$quietly_log" 2>&1 </dev/null || quietly_status=$?
	[ "$quietly_status" -eq 0 ] && return 0
	printf -- '--- the end of %s (status %s):\n' "$quietly_log" "$quietly_status" >&2
	tail -n "${quietly_lines:-40}" "$quietly_log" >&2
	printf -- '---\n' >&2
	return "$quietly_status"
}

# retry COMMAND...: for what needs the network.
retry() {
	for retry_pause in 3 10 30; do
		"$@" && return 0
		echo "failed: $*; trying again in $retry_pause s"
		sleep "$retry_pause"
	done
	"$@"
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		echo "neither root nor sudo: cannot run $*"
		return 1
	fi
}

is_installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Prints those of the packages that are not installed.
missing_packages() {
	for package in "$@"; do
		is_installed "$package" || printf '%s ' "$package"
	done
}

apt_install() {
	retry as_root apt-get update -q &&
		retry as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}

# install_packages LOG PACKAGE...: asks apt only for what is missing.
install_packages() {
	install_log=$1
	shift
	command -v apt-get >/dev/null || {
		echo "apt-get not found: this script is for Debian 12 and 13; needed are: $*" >&2
		return 1
	}
	missing=$(missing_packages "$@")
	[ -n "$missing" ] || return 0
	say "installing: $missing"
	# shellcheck disable=SC2086 # a list of words
	quietly "$install_log" apt_install $missing
}

# Makes ./configure where it is missing or older than what it is made from.
bootstrap() {
	if [ ! -e configure ] || [ ! -e Makefile.in ] || [ configure.ac -nt configure ] || [ Makefile.am -nt Makefile.in ]; then
		autoreconf -fi
	fi
}
