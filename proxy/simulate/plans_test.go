package simulate

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/test/weirtest"
)

// plannedLimits has plans that each request says, and plans in a list, on a key that the log shows and
// on one that it does not.
func plannedLimits(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"users": "u1=pro\nu2=partner\n", "addresses": "198.51.100.1=pro\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return strings.ReplaceAll(`
client_ip: {trusted_proxies: [192.0.2.9]}
upstreams: {demo: echo}
routes:
  - name: a
    match: {path: /a}
    upstream: demo
    limits:
      - {name: said, key: 'header:X-User', rate: 2/1m, plan: 'header:X-Plan', plans: {pro: [6/1m, 40/1h], partner: none}}
      - {name: user, key: 'header:X-User', rate: 3/1m, plan: {list: DIR/users}, plans: {pro: 7/1m, partner: none}, overrides: {u3: 4/1m}}
  - name: b
    match: {path: /b}
    upstream: demo
    limits: [{name: address, key: client_ip, rate: 2/1m, plan: {list: DIR/addresses}, plans: {pro: 6/1m}}]
`, "DIR", dir)
}

// servePlanned serves random requests of four users and clients, each of which changes its plan.
func servePlanned(t *testing.T, yaml string) (log string, served map[proxy.Series]int64) {
	t.Helper()
	c := mustLoad(t, yaml)
	var lines bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		p, err := proxy.New(t.Context(), proxy.Options{
			Config: c, Store: limiter.NewMemory(limiter.MemoryOptions{}), Registry: prometheus.NewRegistry(), Log: zerolog.New(&lines).Hook(weirStamp{}),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		random := rand.New(rand.NewPCG(5, 6))
		for range 1000 {
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			r := httptest.NewRequest("GET", []string{"/a", "/a", "/b"}[random.IntN(3)], nil)
			r.Header.Set("X-User", fmt.Sprint("u", random.IntN(5)))
			r.Header.Set("X-Forwarded-For", fmt.Sprint("198.51.100.", random.IntN(3)))
			if plan := []string{"", "pro", "pro", "partner", "gold"}[random.IntN(5)]; plan != "" {
				r.Header.Set("X-Plan", plan)
			}
			r.RemoteAddr = "192.0.2.9:1"
			weirtest.Exchange(p, r)
		}
		served = p.Counts()
	})
	return lines.String(), served
}

// Weir's own log has the plan under each limit, so that a replay gives what was counted while serving.
func TestRun_OwnLogHasPlans(t *testing.T) {
	for name, more := range map[string]string{"shown clients": "", "hidden clients": "privacy: {log_client: none}\n"} {
		t.Run(name, func(t *testing.T) {
			yaml := more + plannedLimits(t)
			log, served := servePlanned(t, yaml)
			got := mustRun(t, yaml, strings.Replace(yaml, "pro: [6/1m, 40/1h]", "pro: 2/1h", 1), log)
			if got.Result.Unknown != 0 || len(got.Notes) > 0 {
				t.Errorf("%d unknown, notes %q", got.Result.Unknown, got.Notes)
			}
			for _, rt := range got.Result.Routes {
				for _, l := range rt.Limits {
					for result, n := range map[string]int64{"allowed": l.Passed, "refused": l.Refused} {
						if want := served[proxy.Series{Route: rt.Name, Limit: l.Name, Result: result}]; n != want || n == 0 {
							t.Errorf("%s.%s: %d %s; served %d", rt.Name, l.Name, n, result, want)
						}
					}
				}
			}
			if was, is := got.Result.Routes[0].Limits[0], got.Against.Routes[0].Limits[0]; is.Refused <= was.Refused || is.Unknown > 0 {
				t.Errorf("%d refused, and %d with lower rates of a plan, %d unknown", was.Refused, is.Refused, is.Unknown)
			}
		})
	}
}

// What an older log lacks of plans is unknown, except of a list and a key that it shows.
func TestRun_LogWithoutPlans(t *testing.T) {
	yaml := plannedLimits(t)
	log, _ := servePlanned(t, yaml)
	log = regexp.MustCompile(` ?plan:[^ "]+`).ReplaceAllString(log, "")
	got := mustRun(t, yaml, "", log)
	a, b := got.Result.Routes[0], got.Result.Routes[1]
	if a.Limits[0].Passed+a.Limits[1].Passed != 0 || a.Limits[0].Unknown == 0 || a.Limits[1].Unknown == 0 || b.Limits[0].Unknown > 0 || b.Limits[0].Refused == 0 {
		t.Errorf("%+v", got.Result.Routes)
	}
	if len(got.Notes) == 0 || !strings.Contains(strings.Join(got.Notes, "\n"), "the log lacks plan:said, header:X-User") {
		t.Errorf("notes %q; want that plans are missing", got.Notes)
	}
}
