# Make targets. CI runs ./test/run.
.PHONY: build run check format lint test short proof fuzz bench image release clean

build: ## a static binary, ./weir
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o weir .

run: ## serve config.example.yaml
	go run .

check: format lint test ## what to do before a push

format:
	gofmt -w .

lint: ## go vet, and golangci-lint with .golangci.yml where it is installed
	go vet ./...
	@if command -v golangci-lint >/dev/null; then golangci-lint run; \
	else echo "golangci-lint is not installed: only vetted"; fi

test:
	./test/run

short:
	./test/run -short

proof: ## every suite there is, as a table; takes hours
	./test/proof

release: ## archives and packages of this commit, into test/.cache/release
	test/release/build

fuzz: ## a minute for each fuzz target
	@for f in $$(grep -rlE '^func Fuzz' --include='*_test.go' proxy limiter lock); do \
	for t in $$(grep -oE '^func Fuzz[A-Za-z0-9_]*' $$f | cut -c6-); do \
	go test -run '^$$' -fuzz "^$$t$$" -fuzztime 1m ./$$(dirname $$f) || exit 1; done; done

bench: ## what a request costs, beside nginx and others; ARGS="-h" names the workloads
	go run ./test/bench/proxies $(ARGS)

image:
	docker build -t weir .

clean:
	rm -rf weir test/.cache
