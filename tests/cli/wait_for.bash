# shellcheck shell=bash
# wait_for FILE PATTERN: until a line of the file matches, which may not be there yet.
wait_for() {
	local i
	for ((i = 0; i < 200; i++)); do
		! grep -qE -- "$2" "$1" 2>/dev/null || return 0
		sleep 0.05
	done
	echo "no line of $1 matches $2:"
	cat "$1"
	return 1
}
