#!/bin/sh
# The breakdown fraction of three methods on three graphs, into FOLDER: sh analysis/findings/breakdowns.sh FOLDER
# RDPFL_SIM is the command, if it is not rdpfl-sim.
set -e
folder=$1

find_it() { # its name, and what to set
  label=$1
  shift
  ${RDPFL_SIM:-rdpfl-sim} breakdown analysis/findings/scenarios/breakdown.toml --vary adversary.fraction --seeds 5 \
    --set name="$label" "$@" --output "$folder" --quiet
}

for graph in ring complete "{name = \"small_world\", k = 4, p = 0.2}"; do
  name=$(echo "$graph" | tr -cd 'a-z_' | sed 's/name//; s/kp$//')
  find_it "$name-paper" --set topology="$graph"
  find_it "$name-anchored" --set topology="$graph" --set method.name=anchored
  find_it "$name-median" --set topology="$graph" --set method.name=direct
done
