"""The completion scripts of shells. Each asks `seglog __complete` for the words, and completes files if that fails."""

from __future__ import annotations

SHELLS = ("bash", "zsh", "fish")

# Bash ends a word at "@", ":" and "=". It replaces only the piece behind them, so the candidates lose the part before.
_BASH = r"""_seglog() {
    local line=${COMP_LINE:0:COMP_POINT} piece=${COMP_WORDS[COMP_CWORD]} words typed before found word
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    typed=${words[${#words[@]} - 1]}
    [[ $piece == [@:=] || -z $typed ]] && piece=""
    before=${typed%"$piece"}
    COMPREPLY=()
    if found=$("${words[0]}" __complete "${words[@]:1}" 2> /dev/null); then
        while IFS=$'\t' read -r word _; do
            [[ -n $word ]] && COMPREPLY+=("${word#"$before"}")
        done <<< "$found"
    else
        compopt -o default 2> /dev/null
    fi
}
complete -F _seglog seglog
"""

# Zsh completes the part behind "=" of an option, so the candidates lose the part before, as in bash.
_ZSH = r"""#compdef seglog
_seglog() {
    local found line word before=""
    local -a described
    found=$("${(Q)words[1]}" __complete "${(@Q)words[2,CURRENT]}" 2> /dev/null) || { compset -P '--*='; _files; return }
    [[ ${words[CURRENT]} == --*=* ]] && compset -P '--*=' && before=${words[CURRENT]%%=*}=
    for line in "${(@f)found}"; do
        word=${${line%%$'\t'*}#"$before"} line=${line#*$'\t'}
        [[ -n $word ]] && described+=("${word//:/\\:}${line:+:$line}")
    done
    _describe -V seglog described
}
if [[ ${funcstack[1]} == _seglog ]]; then _seglog "$@"; else compdef _seglog seglog; fi
"""

_FISH = r"""function __seglog_complete
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l typed (commandline --current-token --cut-at-cursor)
    set -l name $words[1]
    set -e words[1]
    set -l found ($name __complete $words "$typed" 2> /dev/null)
    if test $status -eq 0
        string join -- \n $found
    else
        set -l option (string match --regex -- '^--[^=]*=' "$typed")
        for file in (__fish_complete_path (string replace -- "$option" "" "$typed"))
            echo -- "$option$file"
        end
    end
end
complete --command seglog --no-files --keep-order --arguments '(__seglog_complete)'
"""


def script(shell: str) -> str:
    """Return the script for a shell of `SHELLS`."""
    return {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[shell]
