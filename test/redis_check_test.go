package test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// What keeps Weir from using Redis until an operator changes something is logged as an
// error that names the field to change, at the start.
func TestRedisCheck_NamesTheField(t *testing.T) {
	t.Parallel()
	locked, open := redistest.Start(t, "--requirepass", "right"), redistest.Start(t)
	rights := redistest.Start(t, "--user", "default", "off", "--user", "weir", "on", ">right", "~weir:*", "&weir:*", "+@all", "-@scripting")
	sentinel := redistest.StartSentinel(t)
	lockedSentinel := sentinel.Addrs[2]
	if err := redisClient(t, lockedSentinel).Do(t.Context(), "acl", "setuser", "default", "resetpass", ">right").Err(); err != nil {
		t.Fatal(err)
	}
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
	if err := redisClient(t, server.Addr).ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err(); err != nil {
		t.Fatal(err)
	}
	if got, _ := w.checks()["eviction"]; got != "" || strings.Contains(against(), "evict") {
		t.Errorf("the policy was changed, and /readyz says %q", got)
	}
}
