# go run ./cmd/holdfast demo and go test ./... need no Makefile. The rest is here.

GOFUMPT     = go run mvdan.cc/gofumpt@v0.12.0
STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
# The packages whose tests keep golden files.
GOLDEN      = $(shell grep -rl --include='*_test.go' 'flag.Bool("update"' . | xargs -n1 dirname | sort -u)

.DEFAULT_GOAL = help
.PHONY: help check lint race bench golden docs demo ci

help: ## list what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

check: ## the fast one, before every commit: go vet, go test -short
	go vet ./...
	go test -short ./...

lint: ## gofumpt, go vet, staticcheck (staticcheck.conf says what is left out, and why)
	@unformatted="$$($(GOFUMPT) -l .)"; if [ -n "$$unformatted" ]; then echo "run gofumpt -w on:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	$(STATICCHECK) ./...

race: ## the race detector on engine, stores and HTTP; needs a C compiler
	CGO_ENABLED=1 go test -race ./engine/... ./store/... ./httpapi/...

bench: ## the whole grid on PostgreSQL and SQLite beside the baselines; about 40 minutes, RESULTS=FILE keeps the figures
	go test -v -count=1 -timeout=0 -run '^TestTheWholeGrid$$' ./bench -args -whole $(if $(RESULTS),-json $(abspath $(RESULTS)))

.PHONY: sim mutants
sim: ## the simulator: N seeds from SEED on, STEPS each (500 from 1; a SEED alone is replayed alone)
	go test ./internal/sim -run '^TestSimulation$$' -count=1 -timeout=0 -sim.seed=$(or $(SEED),1) -sim.n=$(or $(N),$(if $(SEED),1,500)) $(if $(STEPS),-sim.steps=$(STEPS))

mutants: ## plants bugs, one at a time, in copies of the code, and looks for each with the simulator
	go test ./internal/sim/mutants -count=1 -timeout=0 -v -mutants.all

.PHONY: killed
killed: ## 1,000 jobs on PostgreSQL while worker processes are killed at random; JOBS=N for another number
	go test ./internal/acceptance -run '^TestWorkersThatAreKilledAtRandom' -count=1 -timeout=0 -v -args -killed.jobs=$(or $(JOBS),1000)

golden: ## rewrite the golden files with what the code says now; read the diff before committing it
	go test $(GOLDEN) -update

docs: ## rewrite the tables and examples of docs/ that come from the code; compare the rest of docs/ with it
	go test -run '^TestDocs' . -update

demo: ## a page with a chat, and what the database believes beside it
	go run ./cmd/holdfast demo

.PHONY: picture
picture: ## take the picture of the demo in docs/ anew
	go test ./internal/acceptance -run '^TestTheDemosPageShows' -count=1 -args -screenshots $(abspath docs)

ci: ## what .ci/run does
	.ci/run
