package openapi

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/redistest"
)

const operatorsToken = "0123456789abcdef"

// sharedYAML is a configuration that is shared through Redis, and may be pushed.
func sharedYAML(redis string) string {
	return strings.NewReplacer(
		`admin: {http: "127.0.0.1:0"}`, `admin: {http: "127.0.0.1:0", token: "`+operatorsToken+`"}`+"\nstore: redis\nredis: {addrs: [\""+redis+"\"], timeout: 5s}\nreload: {source: redis}",
		"respond: {body: ok}", "upstream: echo",
	).Replace(served)
}

// startRedis starts the server that tests use, and returns its address.
func startRedis(t *testing.T) string {
	t.Helper()
	path, err := exec.Command("../install", "redis-server").Output()
	if err != nil {
		t.Fatalf("find redis-server: %v", err)
	}
	t.Setenv("WEIR_REDIS_SERVER", strings.TrimSpace(string(path)))
	return redistest.Start(t).Addr
}

// The client that a generator makes of the document reads what every operation answers.
func TestDocument_MakesAClient(t *testing.T) {
	config := sharedYAML(startRedis(t))
	clients, operators := startOn(t, config)
	d := document(t, operators)
	dir := t.TempDir()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	generated, overlay := filepath.Join(dir, "client.go"), filepath.Join(dir, "overlay.json")
	filetest.Write(t, string(text), filepath.Join(dir, "openapi.json"))
	run(t, "tool", "oapi-codegen", "-generate", "types,client", "-package", "main", "-o", generated, filepath.Join(dir, "openapi.json"))
	here, err := filepath.Abs("caller/client.go")
	if err != nil {
		t.Fatal(err)
	}
	filetest.Write(t, fmt.Sprintf(`{"Replace": {%q: %q}}`, here, generated), overlay)
	askUntilRefused(t, clients)
	said := run(t, "run", "-overlay", overlay, "-tags", "generated", "./caller", operators+"/api/v1", operatorsToken, strings.Replace(config[strings.Index(config, "keys:"):], "1/1h", "2/1h", 1))
	for path, item := range d.Paths.Map() {
		for method, operation := range item.Operations() {
			if !strings.Contains("\n"+said, "\n"+operation.OperationID+"\n") {
				t.Errorf("%s %s stands in the document, and the client did not call it", method, path)
			}
		}
	}
}

// run runs go, and returns what it prints.
func run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s%s", args[0], err, out, complaints.String())
	}
	return string(out)
}
