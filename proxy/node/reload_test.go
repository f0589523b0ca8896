package node

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/test/await"
)

// listen is the beginning of a file that listens on free ports.
const listen = "listen: {http: '127.0.0.1:0', drain: {delay: 300ms}}\nadmin: {http: '127.0.0.1:0'}\n"

// postStatus is how the admin API answers a POST.
func postStatus(t *testing.T, n *testNode, path string) int {
	t.Helper()
	answer, err := http.Post("http://"+n.Address("admin")+path, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

func TestReload_ByTheAdminAPI(t *testing.T) {
	n := mustStart(t, write(t, listen+respondYAML("1")))
	for _, row := range []struct {
		text, served string
		status       int
	}{
		{listen + respondYAML("2"), "2", 200},
		{"routes: nonsense\n", "2", 422},
		{strings.Replace(listen, "listen: {", "listen: {max_header: 9KiB, ", 1) + respondYAML("3"), "2", 409}, // needs a restart
		{listen + respondYAML("4"), "4", 200},
	} {
		if err := os.WriteFile(n.source.path, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := postStatus(t, n, "/reload"); got != row.status {
			t.Errorf("reload of %q = %d; want %d", row.text, got, row.status)
		}
		if got := fetch(t, "http://"+n.Address("http")+"/a"); got != row.served {
			t.Errorf("after %q %q is served; want %q", row.text, got, row.served)
		}
	}
}

// What is odd about a configuration, and no fault, is said at the start and at each
// reload.
func TestReload_WarningsAreLogged(t *testing.T) {
	const odd = "routes:\n  - {name: send, match: {path: /a}, upstream: echo, limits: [{key: client_ip, rate: %s}]}\n  - {name: rest, match: {path: /*}, upstream: echo}\n"
	n := mustStart(t, write(t, listen+fmt.Sprintf(odd, "1/1m")))
	if got := n.waitForLog("config warning"); !strings.Contains(fmt.Sprint(got["problem"]), "routes[1]") || !strings.HasSuffix(fmt.Sprint(got["at"]), ":5:32") {
		t.Errorf("the log says %v; want which route, and where", got)
	}
	if err := os.WriteFile(n.source.path, []byte(listen+fmt.Sprintf(odd, "2/1m")), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := postStatus(t, n, "/reload"); got != 200 {
		t.Fatalf("reload = %d", got)
	}
	await.Until(t, "a second warning", func() bool { return strings.Count(n.log.String(), `"config warning"`) == 2 }, n.log)
}

// While it drains a node is not ready, says so, and serves on until the delay is over.
func TestDrain_ServesUntilTheDelayIsOver(t *testing.T) {
	n := mustStart(t, write(t, listen+respondYAML("1")))
	ended := make(chan error, 1)
	go func() { ended <- n.end() }()
	n.waitForLog("draining")
	answer, err := http.Get("http://" + n.Address("http") + "/a")
	if err != nil {
		t.Fatalf("while it drains: %v", err)
	}
	answer.Body.Close()
	if answer.StatusCode != 200 || !answer.Close {
		t.Errorf("while it drains: %d, close %v; want an answer that ends its connection", answer.StatusCode, answer.Close)
	}
	answer, err = http.Get("http://" + n.Address("admin") + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readyz while it drains = %d; want 503", answer.StatusCode)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n.findLog("drained") == nil {
		t.Errorf("log:\n%s", n.log)
	}
}

// Parts close in the opposite order to that in which they need each other.
func TestNode_CloseOrder(t *testing.T) {
	n := mustStart(t, write(t, listen+respondYAML("1")))
	var names []string
	for _, c := range n.closers.stack {
		names = append(names, c.name)
	}
	slices.Reverse(names)
	want := []string{"leadership", "requests", "cluster membership", "tasks", "http listener", "admin listener", "proxy", "audit", "statistics", "store"}
	if !slices.Equal(names, want) {
		t.Errorf("closes %q; want %q", names, want)
	}
	if at := slices.Index(names, "requests"); n.closers.stack[len(names)-1-at].timeout < n.drains.Delay+n.drains.Within {
		t.Error("requests have less time than the configuration gives them")
	}
}

func TestAdmin_IsOpenToWhomTheConfigurationSays(t *testing.T) {
	n := mustStart(t, write(t, strings.Replace(listen, "admin: {", "admin: {token: 'sixteen characters', ", 1)+respondYAML("1")))
	if got := postStatus(t, n, "/reload"); got != http.StatusUnauthorized {
		t.Errorf("reload without the token = %d; want 401", got)
	}
	client := admin.Client{Address: n.Address("admin"), Token: "sixteen characters"}
	if _, err := client.History(t.Context()); err == nil || !strings.Contains(err.Error(), "serves its own file") {
		t.Errorf("history with the token: %v; want that nothing can be pushed here", err)
	}
}
