#!/bin/sh
# The search behind the headline: 16 trials for every method, over all knobs that change what it learns and not what it
# sends. The same command again goes on where it was stopped; trials are the same for any number of processes.
#     results/headline/search.sh [TRIALS]
set -eu
lion="method.lr=1e-4..2e-3"
adam="method.lr=5e-4..8e-3"
dion() {
  echo "--tune $1:method.lr=2e-3..4e-2 --tune $1:method.other_lr=5e-4..8e-3 --tune $1:method.mu=1-0.2..1-0.01"
}
cub() {
  echo "--tune $1:$lion --tune $1:method.beta1=1-0.3..1-0.02 --tune $1:method.beta2=1-0.2..1-0.005"
}
exec syncline sweep "$(dirname "$0")/search.yaml" --search optuna --trials "${1:-16}" --out runs/headline-search \
  --tune ddp-adam:$adam --tune ddp-adam:method.rule.beta1=1-0.2..1-0.03 --tune ddp-adam:method.rule.beta2=1-0.1..1-0.001 \
  --tune ddp-lion:$lion --tune ddp-lion:method.rule.beta1=1-0.3..1-0.02 --tune ddp-lion:method.rule.beta2=1-0.2..1-0.005 \
  --tune local-adam:$adam --tune local-adam:method.rule.beta1=1-0.2..1-0.005 \
  --tune local-adam:method.rule.beta2=1-0.1..1-0.001 \
  --tune diloco:$adam --tune diloco:method.rule.beta2=1-0.1..1-0.001 \
  --tune diloco:method.outer_lr=0.4..1.6 --tune diloco:method.outer_momentum=1-1..1-0.05 \
  --tune mt-dao:$adam --tune mt-dao:method.betas.0=1-0.2..1-0.005 \
  --tune mt-dao:method.omegas.0=1-0.4..1-0.03 --tune mt-dao:method.beta2=1-0.1..1-0.001 \
  --tune demo:method.lr=3e-4..6e-3 --tune demo:method.beta=1-0.1..1-0.001 \
  $(dion dion) $(dion dion-scheduled) $(dion curvadion) $(cub lion-cub-1bit) $(cub lion-cub-8bit) \
  --jobs "${JOBS:-2}"
