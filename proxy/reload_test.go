package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/rounds"
)

func TestReload_KeepsWhatWasTaken(t *testing.T) {
	w := newProxy(t, limitYAML("{name: l, key: header:X-User, rate: 1/1h}"))
	w.sends(200, "GET", "/a", "X-User: alice")
	w.sends(429, "GET", "/a", "X-User: alice")
	if report := w.reloads(limitYAML("{name: l, key: header:X-User, rate: 3/1h}")); report.Generation != 2 {
		t.Fatalf("Reload = %+v; want generation 2", report)
	}
	w.sends(200, "GET", "/a", "X-User: alice")
	w.sends(200, "GET", "/a", "X-User: alice")
	w.sends(429, "GET", "/a", "X-User: alice")
	w.reloads(limitYAML("{name: l, key: header:X-User, rate: 3/2h}")) // another window has counts of its own
	w.sends(200, "GET", "/a", "X-User: alice")
}

func TestReload_ErrorChangesNothing(t *testing.T) {
	good := limitYAML("{name: l, key: global, rate: 1/1h}")
	busy := errors.New("busy")
	for _, c := range []struct {
		name, yaml string
		is         func(error) bool
	}{
		{"nonsense", "routes: [", func(err error) bool {
			var ps config.Problems
			return errors.As(err, &ps) && ps[0].Line > 0
		}},
		{"another address", "listen: {http: ':1'}\n" + good, func(err error) bool {
			return errors.Is(err, ErrRestart) && strings.Contains(err.Error(), "listen")
		}},
		{"no agreement", good + "# more\n", func(err error) bool { return errors.Is(err, busy) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newProxy(t, good, func(o *Options) {
				o.Agree = func(context.Context, *config.Config, func(int64)) error { return busy }
			})
			before := w.current.Load()
			w.write(c.yaml)
			if _, err := w.Reload(t.Context()); !c.is(err) {
				t.Fatalf("Reload = %v; want that it is told", err)
			}
			if w.current.Load() != before {
				t.Error("another generation is served")
			}
			w.sends(200, "GET", "/a")
			w.sends(429, "GET", "/a")
		})
	}
}

func TestReload_AloneIsNoError(t *testing.T) {
	away := errors.New("away")
	w := newProxy(t, limitYAML("{key: global, rate: 1/1h}"), func(o *Options) {
		o.Agree = func(_ context.Context, _ *config.Config, swap func(int64)) error { swap(7); return away }
	})
	if report := w.reloads(limitYAML("{key: global, rate: 2/1h}")); report.Generation != 7 || !errors.Is(report.AgreeErr, away) {
		t.Errorf("Reload = %+v; want generation 7, and why it is alone", report)
	}
}

// Keys of tokens that cannot be loaded again are told of in the log, from the start and after a reload.
func TestReload_KeysOfTokensThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := filepath.Join(t.TempDir(), "keys.json")
		filetest.Write(t, oneKey, keys)
		yaml := "jwt: {jwks: '" + keys + "'}\n" + limitYAML("{name: l, key: 'jwt:sub', rate: 5/1h}")
		w := newProxy(t, yaml)
		for want, text := range []string{oneKey, "{"} {
			filetest.Write(t, text, keys)
			w.toldOfKeys(want, keys)
		}
		filetest.Write(t, oneKey, keys)
		w.reloads(yaml + "# another\n")
		filetest.Write(t, "{", keys)
		w.toldOfKeys(2, keys)
	})
}

// A log that is replayed by the configuration that is served leaves the keys of its tokens to requests.
func TestReplay_LeavesTheKeysOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := filepath.Join(t.TempDir(), "keys.json")
		filetest.Write(t, oneKey, keys)
		w := newProxy(t, "jwt: {jwks: '"+keys+"'}\n"+limitYAML("{name: l, key: 'jwt:sub', rate: 5/1h}"))
		_, served := w.Serving()
		r, err := NewReplay(served, ReplayOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		filetest.Write(t, "{", keys)
		w.toldOfKeys(1, keys)
	})
}

// A set with one key, and a token of that key whose signature is wrong: it is refused with 401, without keys with 503.
const (
	oneKey   = `{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`
	unsigned = "Authorization: Bearer eyJhbGciOiJFZERTQSIsImtpZCI6ImEifQ.e30.AAAA"
)

// A reload while the issuer of tokens is down leaves the keys that are known.
func TestReload_WhileTheIssuerIsDown(t *testing.T) {
	var down atomic.Bool
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		io.WriteString(w, oneKey)
	}))
	defer issuer.Close()
	w := newProxy(t, "jwt: {jwks: '"+issuer.URL+"'}\n"+limitYAML("{name: l, key: 'jwt:sub', rate: 5/1h}"))
	w.sends(http.StatusUnauthorized, "GET", "/a", unsigned)
	down.Store(true)
	for range 2 {
		if report, err := w.Reload(t.Context()); err != nil || report.Unready != nil {
			t.Fatalf("Reload = %+v, %v; want that tokens are accepted", report, err)
		}
		w.sends(http.StatusUnauthorized, "GET", "/a", unsigned)
	}
	if n := len(w.lines("keys of tokens not reloaded")); n != 2 {
		t.Errorf("the log tells %d times of keys that are not reloaded; want it for each reload", n)
	}
}

// A proxy that agrees on its configuration later keeps the keys of its tokens, and can still be reloaded and closed.
func TestRejoin_KeepsTheKeysOfTokens(t *testing.T) {
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, oneKey) }))
	defer issuer.Close()
	number, away := int64(1), errors.New("away")
	err := away
	yaml := "jwt: {jwks: '" + issuer.URL + "'}\n" + limitYAML("{name: l, key: 'jwt:sub', rate: 5/1h}")
	w := newProxy(t, yaml, func(o *Options) {
		o.Number, o.Agree = 0, func(_ context.Context, _ *config.Config, swap func(int64)) error { swap(number); return err }
	})
	for _, c := range []struct {
		number int64
		err    error
		want   Report
	}{{2, away, Report{Generation: 2, Changed: true, AgreeErr: away}}, {7, nil, Report{Generation: 7, Changed: true}}, {9, nil, Report{Generation: 7}}} {
		number, err = c.number, c.err
		joined := make(chan Report, 1)
		go func() {
			report, _ := w.Rejoin(t.Context())
			joined <- report
		}()
		got := await.Value(t, joined, "the agreement")
		if got.Generation != c.want.Generation || got.Changed != c.want.Changed || !errors.Is(got.AgreeErr, c.want.AgreeErr) {
			t.Errorf("Rejoin = %+v; want %+v", got, c.want)
		}
		w.sends(http.StatusUnauthorized, "GET", "/a", unsigned)
	}
	if report := w.reloads(yaml + "# another\n"); report.Generation != 9 {
		t.Errorf("Reload = %+v; want generation 9", report)
	}
}

// toldOfKeys waits until keys of tokens were read again, and wants the log to have told of their file so often.
func (p *testProxy) toldOfKeys(want int, file string) {
	p.Helper()
	time.Sleep(5*time.Minute + time.Second)
	synctest.Wait()
	if n := strings.Count(p.log.String(), "keys of tokens not reloaded"); n != want || n > 0 && !strings.Contains(p.log.String(), file) {
		p.Errorf("told %d times of %s, want %d: %s", n, file, want, p.log.String())
	}
}

func TestReload_SameContentIsNoChange(t *testing.T) {
	w := newProxy(t, limitYAML("{key: global, rate: 1/1h}"))
	if report, err := w.Reload(t.Context()); err != nil || report.Changed || report.Generation != 1 {
		t.Errorf("Reload = %+v, %v; want no change", report, err)
	}
}

// A retired generation serves the requests that it began, and is closed by the
// last of them.
func TestReload_RequestsEndInTheirGeneration(t *testing.T) {
	w := newProxy(t, limitYAML("{key: global, rate: 1/1h}"))
	g := w.acquire(0)
	w.reloads("upstreams: {demo: echo}\nroutes: [{match: {path: /b}, upstream: demo}]\n")
	if users := g.users.Sum(); users != 1 {
		t.Errorf("the retired generation has %d users; want the one request", users)
	}
	x := wanting("GET", "x", "/a")
	x.client.network = x.client.network.Masked()
	if err := g.match(x); err != nil {
		t.Errorf("the retired generation forgot its route: %v", err)
	}
	g.release(0)
	if users := g.users.Sum(); users != 0 {
		t.Errorf("%d users; want none", users)
	}
}

// Every answer comes from one configuration: /a exists exactly when its limit
// is called as the configuration calls it.
func TestReload_NoRequestSeesHalf(t *testing.T) {
	var all sync.WaitGroup
	yaml := func(name string) string {
		return "upstreams: {demo: echo}\nroutes:\n  - {match: {path: /a}, upstream: demo, limits: [{name: " + name + ", key: global, rate: 1/1h}]}\n" +
			"  - {match: {path: /" + name + "}, upstream: demo}\n"
	}
	w := newProxy(t, yaml("one"))
	stop := make(chan struct{})
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if rec := w.send("GET", "/a"); rec.Code != 200 && rec.Code != 429 {
					t.Errorf("status %d during a reload", rec.Code)
				}
			}
		})
	}
	for i := range 50 {
		w.reloads(yaml([]string{"two", "one"}[i%2]))
	}
	close(stop)
	all.Wait()
}

// writeMillion writes a list of a million values in long runs, and of fewer otherwise, which begin with prefix, and
// returns what the last of them ends with.
func writeMillion(t testing.TB, path, prefix string) (last string) {
	var text bytes.Buffer
	for i := range min(rounds.Of(200_000), 1_000_000) {
		last = fmt.Sprintf("%08d", i)
		text.WriteString(prefix + last + "\n")
	}
	filetest.Write(t, text.String(), path)
	return last
}

func millionYAML(list string) string {
	return "lists: {friends: {key: 'header:X-User', file: '" + list + "', action: bypass}, staff: {key: 'header:X-User', values: [ann], action: bypass}}\n" +
		"routes: [{match: {path: /a}, respond: {body: ok}, lists: [friends, staff], limits: [{key: global, rate: 1/1h}]}]\n"
}

// While a list of a million values is loaded, requests go on under the one before: none fails, and those that come
// meanwhile do not wait for it.
func TestReload_OfAMillionValuesStopsNobody(t *testing.T) {
	list := filepath.Join(t.TempDir(), "friends.txt")
	writeMillion(t, list, "old-")
	w := newProxy(t, millionYAML(list))
	w.sends(200, "GET", "/a", "X-User: bob") // the one of the hour
	last := writeMillion(t, list, "new-")
	var clients sync.WaitGroup
	var answered atomic.Int64
	stop := make(chan struct{})
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if one, other := w.send("GET", "/a", "X-User: old-"+last).Code, w.send("GET", "/a", "X-User: new-"+last).Code; one == 429 && other == 429 {
					// the reload may have been between the two; then the second is of the new list
					if again := w.send("GET", "/a", "X-User: new-"+last).Code; again != 200 {
						t.Errorf("a user of neither list: %d %d, then %d", one, other, again)
					}
				}
				if code := w.send("GET", "/a", "X-User: ann").Code; code != 200 {
					t.Errorf("status %d during the reload", code)
				}
				answered.Add(1)
			}
		})
	}
	await.Until(t, "requests are answered", func() bool { return answered.Load() > 4 })
	before := answered.Load()
	if _, err := w.Reload(t.Context()); err != nil {
		t.Error(err)
	}
	during := answered.Load() - before
	close(stop)
	clients.Wait()
	if during == 0 {
		t.Error("no request was answered during the reload")
	}
	w.sends(200, "GET", "/a", "X-User: new-00000000")
	w.sends(429, "GET", "/a", "X-User: old-00000000")
}

// BenchmarkReload_OfAMillionValues is the time of a reload with a list of a million values, of which 2 s are the
// most, and the memory of a value, of which 100 bytes are.
func BenchmarkReload_OfAMillionValues(b *testing.B) {
	list := filepath.Join(b.TempDir(), "friends.txt")
	before := heapInUse()
	writeMillion(b, list, "k0-")
	p := newProxy(b, millionYAML(list), bare)
	for i := 1; b.Loop(); i++ {
		b.StopTimer()
		writeMillion(b, list, fmt.Sprintf("k%d-", i%10))
		b.StartTimer()
		if _, err := p.Reload(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(heapInUse()-before)/1e6, "bytes/value")
}

// heapInUse returns the bytes in use after a garbage collection.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
