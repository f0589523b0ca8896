package peers

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
)

// settleRoutes are those of envoy-settle.yaml: each request takes 1000 tokens.
const settleRoutes = `
keys: {tenant: "descriptor:tenant"}
routes:
  - {name: tokens, match: {domain: edge, descriptor: {tenant: "*"}}, refund_on: {status: [5xx]}, limits: [{name: tokens, key: tenant, rate: 3000/1h, algorithm: sliding_log}]}
`

// remainingPattern finds what remains in a RateLimit field.
var remainingPattern = regexp.MustCompile(`;r=(\d+)`)

// TestSettle_EnvoyTellsWhatARequestHasCost asks one Weir and reads from the other what has remained.
func TestSettle_EnvoyTellsWhatARequestHasCost(t *testing.T) {
	if !slices.Contains(strings.Fields(os.Getenv("WEIR_PEERS")), "envoy") {
		t.Log("envoy is left out")
		return
	}
	all := peers()
	p := all[slices.IndexFunc(all, func(p peer) bool { return p.name == "envoy" })]
	p.files, p.routes = []string{"envoy-settle.yaml"}, settleRoutes
	b := newBench(t, &p)
	for _, test := range []struct {
		tenant   string
		response []string
		remains  string // of 3000, after this request and one that takes 1000; "" if that is refused
	}{
		{"less", []string{"X-Use: 123"}, "1877"},
		{"nothing", []string{"X-Use: 0"}, "2000"},
		{"as reserved", []string{"X-Use: 1000"}, "1000"},
		{"more", []string{"X-Use: 1500"}, "500"},
		{"more than there is", []string{"X-Use: 5000"}, ""},
		{"failed", []string{"X-Status: 503"}, "2000"},
		{"failed with a cost", []string{"X-Status: 503", "X-Use: 10"}, "1990"},
	} {
		b.settled(func() { b.send(0, "/", append(test.response, "X-Tenant: "+test.tenant)...) })
		b.remains(test.tenant, test.remains)
	}
	for _, kept := range [][]string{{}, {"X-Use: many"}, {"X-Use: -5"}, {"X-Status: 404"}} {
		tenant := "kept " + strings.Join(kept, "")
		b.wants(map[bool]int{true: 404, false: 200}[slices.Contains(kept, "X-Status: 404")], 0, "/", append(kept, "X-Tenant: "+tenant)...)
		b.settled(func() { b.send(0, "/", "X-Tenant: next", "X-Use: 0") }) // Envoy would have reported before
		b.remains(tenant, "1000")
	}
	b.clientLeaves("left")
	b.settled(func() { b.send(0, "/", "X-Tenant: next", "X-Use: 0") })
	b.remains("left", "1000")
	// A client cannot say what its request has cost, nor settle that of others.
	b.app.received()
	b.send(0, "/", "X-Tenant: forging", "X-Tokens-Used: 0", "X-Weir-Handle: of the client")
	b.settled(func() { b.send(0, "/", "X-Tenant: next", "X-Use: 0") })
	b.remains("forging", "1000")
}

// remains sends a request to the other Weir and compares what is left of the tenant's tokens.
func (b *bench) remains(tenant, want string) {
	b.Helper()
	if want == "" {
		b.wants(429, 1, "/", "X-Tenant: "+tenant)
		return
	}
	found := remainingPattern.FindStringSubmatch(b.wants(200, 1, "/", "X-Tenant: "+tenant).header.Get("RateLimit"))
	if found == nil || found[1] != want {
		b.Errorf("%s: %v remains; want %s", tenant, found, want)
	}
}

// clientLeaves sends a request that is never answered, and leaves when the application has it.
func (b *bench) clientLeaves(tenant string) {
	b.Helper()
	ctx, leave := context.WithCancel(b.Context())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, "GET", b.urls[0]+"/forever", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("X-Tenant", tenant)
	b.app.received()
	ended := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(r)
		ended <- err
	}()
	await.Until(b.T, "the request at the application", func() bool { return b.app.received() != nil })
	leave()
	if err := <-ended; err == nil {
		b.Error("a request to /forever was answered")
	}
	await.Value(b.T, b.app.left, "the end of the request at the application")
}
