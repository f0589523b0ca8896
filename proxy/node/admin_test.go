package node

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
)

// Wrong tokens are logged once a minute, and the last ones at the end.
func TestWrongTokens_AreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Log
		w := admin.NewWrongTokens(prometheus.NewRegistry())
		o := admin.Options{Token: "a-token-of-operators", WrongTokens: w}
		guess := func(n int, address string) {
			for range n {
				r := httptest.NewRequest(http.MethodGet, "/api/v1/nodes", nil)
				r.RemoteAddr = address
				o.Authenticate(r, "a-token-that-is-wrong")
			}
		}
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { logWrongTokens(ctx, w, zerolog.New(&log)); close(ended) }()
		guess(300, "203.0.113.7:4000")
		guess(1, "203.0.113.8:4001")
		synctest.Wait()
		if got := log.Count("wrong admin tokens"); got != 0 {
			t.Errorf("%d lines before the minute is over; want none", got)
		}
		time.Sleep(time.Minute + time.Second)
		time.Sleep(5 * time.Minute) // in which nothing is sent
		guess(1, "203.0.113.7:4002")
		end()
		<-ended
		want := []logtest.Line{
			{"level": "warn", "wrong": 6., "slowed": 295., "addresses": 2., "last": "203.0.113.8:4001", "message": "wrong admin tokens"},
			{"level": "warn", "wrong": 1., "slowed": 0., "addresses": 1., "last": "203.0.113.7:4002", "message": "wrong admin tokens"},
		}
		got := log.Lines()
		if len(got) != len(want) {
			t.Fatalf("got %s; want %d lines", log.String(), len(want))
		}
		for i := range want {
			for field, value := range want[i] {
				if got[i][field] != value {
					t.Errorf("line %d has %s %v; want %v", i+1, field, got[i][field], value)
				}
			}
		}
	})
}

// A node slows, counts and logs; its health checks go on.
func TestWrongTokens_OfANode(t *testing.T) {
	n := mustStart(t, write(t, "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0', token: a-token-of-operators}\nroutes: [{match: {path: /a}, upstream: echo}]\nupstreams: {echo: echo}\n"))
	ask := func(token string) int {
		r, err := http.NewRequest(http.MethodGet, "http://"+n.Address("admin")+"/api/v1/nodes", nil)
		check(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		check(t, err)
		defer answer.Body.Close()
		return answer.StatusCode
	}
	for range 20 { // as weir top asks
		if got := ask("a-token-of-operators"); got != http.StatusOK {
			t.Fatalf("the right token is answered %d", got)
		}
	}
	slowed := 0
	for range 30 {
		if ask("a-token-that-is-wrong") == http.StatusTooManyRequests {
			slowed++
		}
	}
	if slowed == 0 {
		t.Error("thirty wrong tokens were compared")
	}
	if got := fetch(t, "http://"+n.Address("admin")+"/metrics"); !strings.Contains(got, "weir_admin_wrong_tokens_total ") || strings.Contains(got, "weir_admin_wrong_tokens_total 0") {
		t.Error("/metrics does not count the wrong tokens")
	}
	if got := fetch(t, "http://"+n.Address("admin")+"/healthz"); got != "ok\n" {
		t.Errorf("/healthz is answered %q", got)
	}
	check(t, n.end())
	if line := n.findLog("wrong admin tokens"); line == nil || !strings.HasPrefix(line["last"].(string), "127.0.0.1:") {
		t.Errorf("log line %v; want the wrong tokens of 127.0.0.1", line)
	}
}

// A target that stays down is one warning, and another when it is up again.
func TestTargets_EachChangeIsOneWarning(t *testing.T) {
	var out bytes.Buffer
	log := zerolog.New(&out).Level(zerolog.WarnLevel)
	a, b := proxy.TargetName{Upstream: "sms", Target: "http://a"}, proxy.TargetName{Upstream: "sms", Target: "http://b"}
	down, more, unhealthy := view.TargetState{FailedConnects: 1}, view.TargetState{FailedConnects: 7}, view.TargetState{FailedChecks: 3}
	known := downTargets{}
	for _, step := range []struct {
		now  downTargets
		want []string
	}{
		{nil, nil},
		{downTargets{a: down}, []string{`"target":"http://a"`, `"failed_connects":1`, "target down"}},
		{downTargets{a: more}, nil},
		{downTargets{a: more, b: unhealthy}, []string{`"target":"http://b"`, `"failed_checks":3`, "target down"}},
		{downTargets{b: unhealthy}, []string{`"target":"http://a"`, "target up"}},
		{downTargets{a: down, b: unhealthy}, []string{`"target":"http://a"`, "target down"}},
	} {
		out.Reset()
		known = known.logChanges(log, step.now)
		if lines := strings.Count(out.String(), "\n"); lines != min(len(step.want), 1) {
			t.Errorf("%v: %d lines: %s", step.now, lines, out.String())
		}
		for _, want := range step.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%v: %s; want %s", step.now, out.String(), want)
			}
		}
	}
}

// The second node of one file answers once the first has ended.
func TestAlive_AsLongAsOneServesTheFile(t *testing.T) {
	path := writeConfig(t, "")
	if Alive(t.Context(), path) == nil {
		t.Fatal("alive before any node has begun")
	}
	one, two := mustStart(t, path), mustStart(t, path)
	await.Until(t, "a node answers", func() bool { return Alive(t.Context(), path) == nil })
	one.end()
	await.Until(t, "the second node answers", func() bool { return Alive(t.Context(), path) == nil })
	two.end()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if Alive(ctx, path) == nil {
		t.Error("alive after all have ended")
	}
}

// listenNotify is a socket in systemd's place. heard waits until a state was told there.
func listenNotify(t *testing.T) (heard func(state string) []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func(state string) []string {
		t.Helper()
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		buffer := make([]byte, 4096)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				t.Fatalf("waiting for %s: %v", state, err)
			}
			if lines := strings.Split(string(buffer[:n]), "\n"); slices.Contains(lines, state) {
				return lines
			}
		}
	}
}

func TestSystemd_IsToldFromStartToEnd(t *testing.T) {
	heard := listenNotify(t)
	reload := make(chan os.Signal, 1)
	n, err := startNode(t, writeConfig(t, ""), reload)
	check(t, err)
	if got := heard("READY=1"); !slices.Contains(got, "STATUS=serving generation 1") {
		t.Errorf("ready: %q; want the generation", got)
	}
	reload <- os.Interrupt
	if got := heard("RELOADING=1"); !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, "MONOTONIC_USEC=") }) {
		t.Errorf("reloading: %q; want the time, as Type=notify-reload wants it", got)
	}
	heard("READY=1")
	n.end()
	heard("STOPPING=1")
}

// The watchdog hears of a node as long as its admin listener answers.
func TestSystemd_Watchdog(t *testing.T) {
	heard := listenNotify(t)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	n := mustStart(t, writeConfig(t, ""))
	heard("WATCHDOG=1")
	heard("WATCHDOG=1")
	if !n.alive() {
		t.Error("a node that serves is not alive")
	}
	n.end()
	if n.alive() {
		t.Error("a node that has ended is alive")
	}
}

func TestSystemd_WatchdogThatNobodyWants(t *testing.T) {
	for _, env := range []string{"", "nonsense"} {
		t.Setenv("WATCHDOG_USEC", env)
		var log logtest.Log
		asked := false
		systemd{zerolog.New(&log)}.watchdog(t.Context(), func() bool { asked = true; return true }) // returns at once
		if asked || (env != "") != strings.Contains(log.String(), "watchdog off") {
			t.Errorf("WATCHDOG_USEC=%q: asked %v, log %q", env, asked, log.String())
		}
	}
}

// Twice in the time that systemd gives; a process that hangs is not reported alive.
func TestSystemd_WatchdogInTime(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "10000000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 21*time.Second)
		defer cancel()
		asked := 0
		systemd{zerolog.Nop()}.watchdog(ctx, func() bool { asked++; return false })
		if asked != 5 {
			t.Errorf("asked %d times in 21 s; want 5", asked)
		}
	})
}

func TestSystemd_ASocketThatIsGoneIsLogged(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	var log logtest.Log
	systemd{zerolog.New(&log)}.stopping()
	if !strings.Contains(log.String(), "sd_notify failed") {
		t.Errorf("log %q", log.String())
	}
}

// A client of IPv6 has all addresses of its network: a ban of one of them would be of no use.
func TestChangeNetwork_NoneIsSmallerThanAClient(t *testing.T) {
	n := mustStart(t, write(t, listen+respondYAML("1")))
	ban := view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}
	for text, want := range map[string]string{"2001:db8::7/128": "write 2001:db8::/64", "2001:db8::/65": "write 2001:db8::/64", "2001:db8::/64": "", "192.0.2.7/32": ""} {
		_, err := n.changeNetwork(t.Context(), ban, netip.MustParsePrefix(text))
		if want == "" && err != nil || want != "" && (!errors.Is(err, view.ErrKeyQuery) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
	_, err := n.changeNetwork(t.Context(), view.KeyChange{Action: view.KeyUnban}, netip.MustParsePrefix("2001:db8::7/128"))
	if err == nil || !strings.Contains(err.Error(), "no ban") {
		t.Errorf("the end of one that was made before: %v", err)
	}
}

// What was ordered for a route that is gone can be ended; it would hold again if the route came back. Nothing is ordered for one.
func TestDirectives_OfARouteThatIsGone(t *testing.T) {
	const file = "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0'}\nroutes: [{name: a, match: {path: /a}, respond: {body: ok}}, {name: THIS, match: {path: /b}, respond: {body: ok}}]\n"
	path := write(t, strings.Replace(file, "THIS", "old", 1))
	n := mustStart(t, path)
	hour := view.Span(time.Hour)
	order := func(route string, a view.KeyAction) error {
		c := view.KeyChange{KeyQuery: view.KeyQuery{Pairs: []view.KeyPair{{Key: "client_ip", Value: "203.0.113.0/24"}}, Route: route}, Action: a}
		if a == view.KeyBan {
			c.For = hour
		}
		_, banned := n.operatorChange(t.Context(), c)
		_, err := n.setMaintenance(t.Context(), admin.MaintenanceChange{On: a == view.KeyBan, Route: route})
		if (banned == nil) != (err == nil) {
			t.Errorf("%s %s: %v, the maintenance %v", a, route, banned, err)
		}
		return err
	}
	check(t, order("old", view.KeyBan))
	replaceFile(t, path, strings.Replace(file, "THIS", "new", 1))
	if _, err := n.reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := order("none", view.KeyBan); !errors.Is(err, view.ErrKeyQuery) || !strings.Contains(err.Error(), "write one of a, new") {
		t.Errorf("of no route: %v; want the routes that there are", err)
	}
	if err := order("old", view.KeyUnban); err != nil || len(n.directives.All()) != 0 {
		t.Errorf("of a route that is gone: %v, and %v hold; want that both have ended", err, n.directives.All())
	}
}
