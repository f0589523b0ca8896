package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// The file is named as people name files, and goes away and comes back.
func TestOperate_FileGoesAndComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "etc", "weir.yaml")
	write(t, file, reloadYAML("1/60s")+weirtest.Listeners)
	w := startWith(t, dir, "run", "-c", "./etc/weir.yaml")
	check(t, os.Remove(file))
	w.WaitForLog("reload refused", nil)
	wantStatuses(t, "without its file", w.statuses("p", 2), 200, 429)
	write(t, file, reloadYAML("2/60s")+weirtest.Listeners)
	await.Until(t, "the file that came back is served", func() bool { return w.generation() == 2 })
}

// A Redis that hangs does not keep weir from ending.
func TestOperate_EndsWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := start(t, redisDefaultYAML(server.Addr)+policies())
	w.ask("deny", "p", 1)
	server.Signal(syscall.SIGSTOP)
	w.ask("deny", "p", 1)
	began := time.Now()
	w.Signal(syscall.SIGTERM)
	if code := w.Exit(); code != 0 {
		t.Errorf("exit code %d, want 0; the log ends:\n%s", code, w.log.String()[max(0, len(w.log.String())-1500):])
	}
	if took := time.Since(began); took > 20*time.Second { // requests that do not end are given 25 s
		t.Errorf("weir took %v to end with nothing to do", took)
	}
}

// A password that Redis does not take is said, and no reason not to serve.
func TestOperate_WrongPasswordIsSaid(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "right")
	w := start(t, fmt.Sprintf("store: redis\nredis: {addrs: [%q], password: wrong-secret}\n", server.Addr)+policies())
	await.Until(t, "/readyz has Redis's own word for a wrong password", func() bool {
		return strings.Contains(w.checks()["store"], "WRONGPASS")
	})
	if got := w.ask("deny", "p", 1); got[0] != http.StatusServiceUnavailable {
		t.Errorf("deny answers %v, want 503", got)
	}
	if _, body := w.get(w.Admin + "/readyz"); strings.Contains(body+w.log.String(), "wrong-secret") {
		t.Error("the password is told")
	}
	w = start(t, fmt.Sprintf("store: redis\nredis: {addrs: [%q], password: right, timeout: 5s}\n", server.Addr)+policies())
	if got := w.ask("deny", "p", 1); got[0] != http.StatusOK {
		t.Errorf("with the right password deny answers %v, want 200", got)
	}
}

// Two Weirs with prefixes of their own share a Redis and nothing else; with a
// secret of its own, keys have other names.
func TestOperate_PrefixAndSecretSetApart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	head := func(prefix, secret string) string {
		return fmt.Sprintf("store: redis\nredis: {addrs: [%q], timeout: 5s, prefix: %s}\nprivacy: {hash_secret: %q}\n", server.Addr, prefix, secret)
	}
	secret := "0123456789abcdef0123456789abcdef"
	one := start(t, head("one", "")+smsYAML("1/1h", ""))
	two := start(t, head("two", "")+smsYAML("1/1h", ""))
	three := start(t, head("two", secret)+smsYAML("1/1h", ""))
	for i, w := range []*weir{one, two, three} {
		wantStatuses(t, fmt.Sprintf("weir %d, whatever the others count", i), w.statuses("p", 2), 200, 429)
	}
}

// metric is the value of the series with exactly that name and labels; one that
// is not there is 0.
func (w *weir) metric(series string) float64 {
	w.t.Helper()
	for text := range strings.Lines(w.metrics()) {
		at := strings.LastIndexByte(text, ' ')
		if at < 0 || text[:at] != series {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(text[at+1:]), 64)
		check(w.t, err)
		return value
	}
	return 0
}

func (w *weir) metrics() string {
	w.t.Helper()
	status, body := w.get(w.Admin + "/metrics")
	if status != http.StatusOK {
		w.t.Fatalf("/metrics is answered %d %s", status, body)
	}
	return body
}

// checks are what /readyz says of each thing it looks at.
func (w *weir) checks() map[string]string {
	w.t.Helper()
	_, body := w.get(w.Admin + "/readyz")
	var ready struct{ Checks map[string]string }
	if err := json.Unmarshal([]byte(body), &ready); err != nil {
		w.t.Fatalf("/readyz says %q: %v", body, err)
	}
	return ready.Checks
}

// What an alert watches for its growth is there before it grows.
func TestMetrics_BeginAtNothing(t *testing.T) {
	t.Parallel()
	w := start(t, smsYAML("1/1h", ""))
	for _, name := range []string{`weir_reloads_total{result="refused"} 0`, `weir_store_fallback_total{policy="local"} 0`, `weir_store_fallback_total{policy="deny"} 0`} {
		if !strings.Contains(w.metrics(), "\n"+name+"\n") {
			t.Errorf("/metrics does not begin with %s", name)
		}
	}
}

// What keeps Weir from using Redis until an operator changes something is logged as an
// error that names the field to change, at the start.
func TestRedisCheck_NamesTheField(t *testing.T) {
	t.Parallel()
	locked, open := redistest.Start(t, "--requirepass", "right"), redistest.Start(t)
	rights := redistest.Start(t, "--user", "default", "off", "--user", "weir", "on", ">right", "~weir:*", "&weir:*", "+@all", "-@scripting")
	sentinel := redistest.StartSentinel(t)
	lockedSentinel := sentinel.Addrs[2]
	check(t, redisClient(t, lockedSentinel).Do(t.Context(), "acl", "setuser", "default", "resetpass", ">right").Err())
	node := redistest.StartCluster(t, 1).Nodes[0]
	for name, fault := range map[string]struct{ redis, field, says string }{
		"no password":       {fmt.Sprintf("addrs: [%q]", locked.Addr), "redis.password", "NOAUTH"},
		"wrong password":    {fmt.Sprintf("addrs: [%q], password: wrong", locked.Addr), "redis.password", "WRONGPASS"},
		"unknown user":      {fmt.Sprintf("addrs: [%q], username: nobody, password: right", locked.Addr), "redis.password", "WRONGPASS"},
		"no rights":         {fmt.Sprintf("addrs: [%q], username: weir, password: right", rights.Addr), "redis.username", "NOPERM"},
		"single, cluster":   {fmt.Sprintf("addrs: [%q]", node.Addr), "redis.mode", "mode"},
		"single, sentinel":  {fmt.Sprintf("addrs: [%q]", sentinel.Addrs[0]), "redis.mode", "mode"},
		"cluster, single":   {fmt.Sprintf("mode: cluster, addrs: [%q]", open.Addr), "redis.mode", "mode"},
		"sentinel, single":  {fmt.Sprintf("mode: sentinel, master: m, addrs: [%q]", open.Addr), "redis.mode", "mode"},
		"sentinel's own":    {fmt.Sprintf("mode: sentinel, master: weir, addrs: [%q]", lockedSentinel), "redis.sentinel.password", "NOAUTH"},
		"tls, a plain port": {fmt.Sprintf("addrs: [%q], tls: {enabled: true}", open.Addr), "redis.tls", "tls handshake with redis failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, "store: redis\nredis: {"+fault.redis+"}\n"+policies())
			message, level := "redis refused; limits go by on_store_failure", "error"
			if fault.field == "redis.tls" { // as of a Redis that hangs
				message, level = "redis unreachable; limits go by on_store_failure", "warn"
			}
			line := w.log.Find(message)
			if line.Text("level") != level || line.Text("field") != fault.field || !strings.Contains(line.Text("error"), fault.says) {
				t.Errorf("the log says %v, want %s at level %s, with %q and the field %q", line, message, level, fault.says, fault.field)
			}
		})
	}
}

// A user with the rights of the documents can do all that two nodes and their operators do.
func TestRedisCheck_DocumentedRightsAreEnough(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.Addr)
	_, line, _ := strings.Cut(string(filetest.Read(t, "../proxy/docs/failure.md")), "ACL SETUSER ")
	line, _, _ = strings.Cut(line, "\n")
	words := []any{"acl", "setuser"}
	for _, w := range strings.Fields(line) {
		words = append(words, w)
	}
	check(t, client.Do(t.Context(), words...).Err())
	config := fmt.Sprintf("store: redis\nredis: {addrs: [%q], username: weir, password: SECRET, timeout: 10s}\nreload: {source: redis}\n", server.Addr) + policies()
	w := start(t, config)
	start(t, config)
	await.Until(t, "both nodes are listed", func() bool {
		_, stdout, _ := command(t, w.Dir, "nodes", "--admin", w.Admin, "--json")
		return strings.Count(stdout, `"started"`) == 2
	})
	for _, args := range [][]string{{"nodes"}, {"top", "--once"}, {"decisions"}, {"audit"}, {"history"}, {"keys", "bans"}, {"maintenance"}} {
		if code, stdout, stderr := command(t, w.Dir, append(args, "--admin", w.Admin)...); code != 0 || strings.Contains(stdout+stderr, "unreachable") {
			t.Errorf("weir %v exits %d: %s%s", args, code, stdout, stderr)
		}
	}
	if refused, err := client.Do(t.Context(), "acl", "log").Slice(); err != nil || len(refused) > 0 {
		t.Errorf("redis has refused commands: %v (%v)", refused, err)
	}
}

// A Redis that may evict counts is warned of in the log, by /readyz, which stays 200, and
// by weir check --against.
func TestRedisCheck_WarnsOfEviction(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	config := redisDefaultYAML(server.Addr) + policies()
	w := start(t, config)
	await.Until(t, "the log warns", func() bool {
		line := w.log.Find("redis may evict counts")
		return line.Text("level") == "warn" && strings.Contains(line.Text("problem"), "allkeys-lru")
	})
	if got := w.checks(); !strings.Contains(got["eviction"], "allkeys-lru") || got["store"] != "ok" {
		t.Errorf("/readyz says %v, want a warning, and that the store is ok", got)
	}
	if status, _ := w.get(w.Admin + "/readyz"); status != http.StatusOK {
		t.Errorf("/readyz is %d, want 200", status)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "next.yaml"), config+weirtest.Listeners)
	against := func() string {
		code, stdout, stderr := command(t, dir, "check", "next.yaml", "--against", w.Admin)
		if code != 0 {
			t.Fatalf("check --against: %d, %s", code, stderr)
		}
		return stdout
	}
	if got := against(); !strings.Contains(got, "allkeys-lru; set noeviction (warning)\n") {
		t.Errorf("check --against says %q, want a warning", got)
	}
	check(t, redisClient(t, server.Addr).ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	if got, _ := w.checks()["eviction"]; got != "" || strings.Contains(against(), "evict") {
		t.Errorf("the policy was changed, and /readyz says %q", got)
	}
}
