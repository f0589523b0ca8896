package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/redistest"
)

// A process is known by where it listens, also after a restart; with a port that the
// system chooses there is no such name.
func TestStore_ClientName(t *testing.T) {
	host, err := os.Hostname()
	check(t, err)
	for want, listen := range map[string]config.Listen{
		host + " :8080 ":      {HTTP: ":8080"},
		host + " :8080 :8443": {HTTP: ":8080", HTTPS: ":8443"},
	} {
		if got := clientName(listen); got != want {
			t.Errorf("%+v is known as %q; want %q", listen, got, want)
		}
	}
	for _, listen := range []config.Listen{{HTTP: "127.0.0.1:0"}, {HTTP: ":8080", HTTPS: ":0"}} {
		if got := clientName(listen); got != "" {
			t.Errorf("%+v is known as %q; want no name", listen, got)
		}
	}
}

func TestStore_OfOneProcess(t *testing.T) {
	s, err := openStore(&config.Config{Store: config.StoreMemory}, zerolog.Nop(), "v1")
	if err != nil || s.kind != "memory" || s.cluster != nil || s.client != nil {
		t.Fatalf("store = %+v, %v", s, err)
	}
	if _, err := s.check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
	s.close()
}

// Each process has an id of its own, that says on which machine it runs.
func TestStore_NodeID(t *testing.T) {
	host, err := os.Hostname()
	if got := nodeID(); err != nil || !strings.HasPrefix(got, host+"-") || strings.Count(strings.TrimPrefix(got, host), "-") != 2 {
		t.Errorf("id %q", got)
	}
}

// What a Redis is that cannot be reached, or does not let us in, is known from check.
func TestStore_Check(t *testing.T) {
	server := redistest.Start(t)
	o, _ := newTestSource(t)
	s := opened(t, o, server.Addr)
	if _, err := s.check(t.Context()); err != nil {
		t.Fatalf("check: %v", err)
	}
	server.Kill()
	if _, err := s.check(t.Context()); err == nil {
		t.Error("check of a Redis that is gone: no error")
	}
}

// The figures tell of the other nodes, and of permits that are counted late.
func TestStore_Figures(t *testing.T) {
	n, _ := startFollower(t, redistest.Start(t).Addr)
	metrics := fetch(t, "http://"+n.Address("admin")+"/metrics")
	for _, want := range []string{
		"\nweir_cluster_nodes 1\n", "\nweir_cluster_config_drift 0\n", "\nweir_cluster_masters_by_slot 0\n",
		"\n" + `weir_store_reported_permits_total{result="counted"} 0` + "\n", "\n" + `weir_store_reported_permits_total{result="lost"} 0` + "\n",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %q in the figures", strings.TrimSpace(want))
		}
	}
}

// twoKeys limits each request by two keys, which a cluster keeps on different
// nodes for most users.
const twoKeys = `
store: redis
redis: {timeout: 5s, %s}
listen: {http: '127.0.0.1:0'}
admin: {http: '127.0.0.1:0'}
upstreams: {echo: echo}
routes:
  - match: {path: /a}
    upstream: echo
    limits:
      - {name: user, key: header:X-User, rate: 2/1h, on_store_failure: deny}
      - {name: all, key: global, rate: 5/1h, on_store_failure: deny}
`

// allowedUsers sends a request of each user in turn and returns which were let through.
func allowedUsers(t *testing.T, addr string, users ...string) string {
	t.Helper()
	var b strings.Builder
	for _, user := range users {
		r, err := http.NewRequest("GET", "http://"+addr+"/a", nil)
		check(t, err)
		r.Header.Set("X-User", user)
		answer, err := http.DefaultClient.Do(r)
		check(t, err)
		answer.Body.Close()
		switch answer.StatusCode {
		case 200:
			b.WriteString("+")
		case 429:
			b.WriteString("-")
		default:
			fmt.Fprintf(&b, " %d ", answer.StatusCode)
		}
	}
	return b.String()
}

func TestNode_RedisInAllItsShapes(t *testing.T) {
	for mode, redis := range map[string]func() string{
		"single": func() string { return "addrs: ['" + redistest.Start(t).Addr + "']" },
		"cluster": func() string {
			return "mode: cluster, addrs: ['" + strings.Join(redistest.StartMasters(t, 3).Addrs(), "','") + "']"
		},
		"sentinel": func() string {
			s := redistest.StartSentinel(t)
			return "mode: sentinel, master: " + s.Name + ", addrs: ['" + strings.Join(s.Addrs, "','") + "']"
		},
	} {
		t.Run(mode, func(t *testing.T) {
			path := write(t, fmt.Sprintf(twoKeys, redis()))
			first, second := mustStart(t, path).Address("http"), mustStart(t, path).Address("http")
			got := allowedUsers(t, first, "a", "a") + allowedUsers(t, second, "a", "b", "b", "b", "c", "c", "d") + allowedUsers(t, first, "d")
			// A refused request of a or b takes nothing from all, which has 5.
			if want := "++" + "-" + "++" + "-" + "+" + "---"; got != want {
				t.Errorf("passed %s; want %s", got, want)
			}
		})
	}
}

// A wrong password is named at every look, also while Redis rests after it.
func TestCheck_SaysWhyRedisRests(t *testing.T) {
	addr := redistest.Start(t, "--requirepass", "right").Addr
	client, err := redisClient(config.Redis{Addrs: []string{addr}, Password: "wrong", Breaker: config.Breaker{After: 2, Rest: time.Minute}}, connectTimeout)
	check(t, err)
	defer client.Close()
	store := redisstore.New(client, redisstore.Options{CachedRefusals: -1, Timeout: 10 * time.Second})
	defer store.Close()
	for look := range 5 {
		_, err := store.Check(t.Context())
		if err == nil || !strings.Contains(err.Error(), "WRONGPASS") || (look > 1) != errors.Is(err, redisstore.ErrOpen) {
			t.Errorf("look %d: %v", look+1, err)
		}
	}
}

// A Redis without TLS never answers to a handshake: the warning names the field that says so.
func TestUnusable_SilenceAfterATLSHandshake(t *testing.T) {
	for err, want := range map[error]string{
		fmt.Errorf("%w: %w", redisstore.ErrTLS, context.DeadlineExceeded): `"field":"redis.tls","hint":"redis does not answer to TLS`,
		context.DeadlineExceeded: `"error":"context deadline exceeded","message"`,
	} {
		var out bytes.Buffer
		logUnusable(zerolog.New(&out), err)
		if !strings.Contains(out.String(), want) || !strings.Contains(out.String(), `"level":"warn"`) {
			t.Errorf("%v: %s; want %s", err, out.String(), want)
		}
	}
}

// A serverReply is an error that a server replies with.
type serverReply string

func (s serverReply) Error() string { return string(s) }
func (serverReply) RedisError()     {}

// A password that Redis does not know of is told like a wrong one: by the field to change.
func TestFaultOf_APassword(t *testing.T) {
	for _, said := range []serverReply{"WRONGPASS invalid username-password pair", "ERR AUTH <password> called without any password configured"} {
		if f := faultOf(said); f.field != "redis.password" {
			t.Errorf("%s: %q; want redis.password", said, f.field)
		}
	}
}

// A Redis that replies and refuses writes is no store that is ok: /readyz and the log say why.
func TestNode_RedisRefusesWrites(t *testing.T) {
	server := redistest.Start(t)
	n := mustStart(t, write(t, fmt.Sprintf(twoKeys, "addrs: ['"+server.Addr+"']")))
	if got := allowedUsers(t, n.Address("http"), "a"); got != "+" {
		t.Fatalf("passed %s", got)
	}
	direct, err := redisClient(config.Redis{Addrs: []string{server.Addr}}, connectTimeout)
	check(t, err)
	defer direct.Close()
	check(t, direct.ConfigSet(t.Context(), "maxmemory", "1").Err())
	if got := allowedUsers(t, n.Address("http"), "a"); got != " 503 " {
		t.Errorf("passed %s", got)
	}
	const why = "it is full; raise its maxmemory"
	if ready := fetch(t, "http://"+n.Address("admin")+"/readyz"); !strings.Contains(ready, `"store":"redis refuses writes: `+why) {
		t.Errorf("readyz says %s", ready)
	}
	if line := n.waitForLog("redis refused; limits go by on_store_failure"); line["level"] != "error" || !strings.Contains(fmt.Sprint(line["hint"]), why) {
		t.Errorf("the log says %v", line)
	}
}

// A Redis that hangs costs a request of an operator the time of one call, and what is left of operatorTimeout.
func TestAbsence_OneRequestWaitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &absence{after: 4}
		hangs := func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			<-ctx.Done()
			return ctx.Err()
		}
		takes := func(ctx context.Context, call func(context.Context) error, want time.Duration) {
			t.Helper()
			began := time.Now()
			if _ = a.call(ctx, call); time.Since(began) != want {
				t.Errorf("a call takes %v, want %v", time.Since(began), want)
			}
		}
		one, other := forOperator(t.Context()), forOperator(t.Context())
		takes(one, hangs, time.Second)
		takes(one, hangs, operatorTimeout)
		takes(forOperator(one), hangs, 0)
		takes(other, hangs, time.Second) // three failures may be chance
		takes(forOperator(t.Context()), hangs, operatorTimeout)
		takes(t.Context(), hangs, time.Second) // nobody waits for it
		takes(t.Context(), func(context.Context) error { return nil }, 0)
		takes(forOperator(t.Context()), hangs, time.Second)
	})
}
