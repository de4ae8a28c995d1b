#!/bin/sh
# Sets a Rockchip board's NPU, CPU, GPU and memory to their highest clocks, so that figures can be repeated.
#
#   scripts/fix_freq.sh             shows what it would do, and changes nothing
#   sudo scripts/fix_freq.sh --apply    does it, and keeps what was there before
#   sudo scripts/fix_freq.sh --undo     puts back what was there before
#
# Nothing starts it by itself, and a restart of the board undoes it too. At full speed a board without a fan gets hot.
# The clocks are those of Rockchip's fix_freq scripts (RKLLM SDK 1.3.0); where the board knows a lower highest one, that is taken.
# RKLLM_MCP_ROOT stands for / in tests.
set -eu

root=${RKLLM_MCP_ROOT:-}
saved=$root/run/rkllm-mcp/clocks
tab=$(printf '\t')

usage() { sed -n '2,6s/^# \{0,1\}//p' "$0"; }

die() {
    echo "fix_freq.sh: $*" >&2
    exit 1
}

# The clocks of a chip, one line each: NPU Hz, CPU kHz by policy, GPU Hz, memory Hz.
clocks() {
    case $1 in
    rk3588) npu=1000000000 cpu='0:1800000 4:2352000 6:2352000' gpu=1000000000 ddr=2112000000 ;;
    rk3576) npu=1000000000 cpu='0:2208000 4:2304000' gpu=950000000 ddr=2112000000 ;;
    rk3562) npu=1000000000 cpu='0:2016000' gpu= ddr=2112000000 ;;
    rv1126b) npu=950000000 cpu='0:1608000' gpu= ddr=1332000000 ;;
    esac
}

chip() {
    [ -r "$root/proc/device-tree/compatible" ] || return 0
    for name in rk3588 rk3576 rk3562 rv1126b; do
        if tr '\0' '\n' <"$root/proc/device-tree/compatible" | grep -q "^rockchip,${name}s\{0,1\}\$"; then
            echo "$name"
            return
        fi
    done
}

content() { { cat "$1" 2>/dev/null || true; } | head -n 1; }

# The highest clock of a list that is not above the one wanted; the wanted one where there is no list.
highest() {
    [ -r "$1" ] || { echo "$2"; return; }
    best=
    for clock in $(cat "$1"); do
        if [ "$clock" -le "$2" ] && { [ -z "$best" ] || [ "$clock" -gt "$best" ]; }; then best=$clock; fi
    done
    echo "${best:-$2}"
}

# One thing to set, as a line for `carry_out`: the file, the new value, the old one ("-": it is not worth keeping).
step() { printf '%s\t%s\t%s\n' "$1" "$2" "${3:--}"; }

# A governor and its clock. The clock alone is restored where somebody had fixed it before.
governed() { # governor file, clock file, clock, file that tells the clock now
    [ -e "$1" ] || return 0
    before=$(content "$1")
    if [ "$before" = userspace ]; then clock_before=$(content "$4"); else clock_before=; fi
    step "$1" userspace "$before"
    step "$2" "$3" "$clock_before"
}

devfreq() { # folder, Hz
    [ -d "$1" ] || return 0
    governed "$1/governor" "$1/userspace/set_freq" "$(highest "$1/available_frequencies" "$2")" "$1/cur_freq"
}

plan() {
    for idle in "$root"/sys/devices/system/cpu/cpu[0-9]*/cpuidle/state1/disable; do
        [ -e "$idle" ] && step "$idle" 1 "$(content "$idle")"
    done
    for entry in $cpu; do
        policy=$root/sys/devices/system/cpu/cpufreq/policy${entry%%:*}
        governed "$policy/scaling_governor" "$policy/scaling_setspeed" \
            "$(highest "$policy/scaling_available_frequencies" "${entry#*:}")" "$policy/scaling_cur_freq"
    done
    found=
    for folder in "$root"/sys/class/devfreq/*.npu; do
        [ -d "$folder" ] && found=1 && devfreq "$folder" "$npu"
    done
    direct=$root/sys/kernel/debug/rknpu/freq
    if [ -z "$found" ] && [ -e "$direct" ]; then step "$direct" "$npu" "$(content "$direct")"; fi
    for folder in "$root"/sys/class/devfreq/*.gpu; do
        [ -n "$gpu" ] && [ -d "$folder" ] && devfreq "$folder" "$gpu"
    done
    devfreq "$root/sys/class/devfreq/dmc" "$ddr"
}

show() {
    while IFS=$tab read -r file value before; do
        [ -n "$file" ] || continue
        now=$(content "$file")
        [ "$before" = - ] && before=${now:-unknown}
        if [ "$before" = "$value" ]; then mark='  is already'; else mark="  $before ->"; fi
        printf '%s\n%s %s\n' "${file#"$root"}" "$mark" "$value"
    done
}

carry_out() {
    failed=0
    while IFS=$tab read -r file value _; do
        [ -n "$file" ] || continue
        if ! { printf '%s\n' "$value" >"$file"; } 2>/dev/null; then
            echo "fix_freq.sh: ${file#"$root"} could not be set to $value" >&2
            failed=1
        fi
    done
    return $failed
}

need_root() {
    [ -n "$root" ] || [ "$(id -u)" = 0 ] || die "$1 needs root: sudo $0 $1"
}

apply() {
    need_root --apply
    mkdir -p "$(dirname "$saved")"
    # A second --apply must not take our own clocks for those that were there before.
    [ -e "$saved" ] || plan | awk -F '\t' '$3 != "-" { print $1 "\t" $3 }' >"$saved"
    todo=$(plan)
    printf '%s\n' "$todo" | show
    printf '%s\n' "$todo" | carry_out || die "some clocks are as they were; 'sudo $0 --undo' puts the others back"
    echo "Done. To go back: sudo $0 --undo"
}

undo() {
    need_root --undo
    [ -e "$saved" ] || die "nothing to undo: $saved is not there"
    # Backwards: a clock can be set only while its governor still is 'userspace'.
    awk '{ line[NR] = $0 } END { for (n = NR; n > 0; n--) print line[n] }' "$saved" | carry_out ||
        die "not everything could be put back; restarting the board does it"
    rm -f "$saved"
    echo "The clocks are as they were."
}

case ${1:-} in
-h | --help) usage; exit 0 ;;
esac
[ $# -le 1 ] || die "one option at most: --apply or --undo"
soc=$(chip)
[ -n "$soc" ] || die "this is no RK3588, RK3576, RK3562 or RV1126B; nothing to do"
clocks "$soc"
case ${1:-} in
'')
    echo "On this $soc, --apply would set:"
    plan | show
    echo "Nothing was changed. To do it: sudo $0 --apply"
    ;;
--apply) apply ;;
--undo) undo ;;
*) die "there is no option '$1'; there are --apply and --undo" ;;
esac
