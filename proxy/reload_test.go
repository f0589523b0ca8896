package proxy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
)

func TestReload_KeepsWhatWasTaken(t *testing.T) {
	w := made(t, limited("{name: l, key: header:X-User, rate: 1/1h}"))
	w.sends(200, "GET", "/a", "X-User: alice")
	w.sends(429, "GET", "/a", "X-User: alice")
	w.write(limited("{name: l, key: header:X-User, rate: 3/1h}"))
	report, err := w.Reload(t.Context())
	if err != nil || !report.Changed || report.Generation != 2 {
		t.Fatalf("Reload = %+v, %v; want generation 2", report, err)
	}
	w.sends(200, "GET", "/a", "X-User: alice")
	w.sends(200, "GET", "/a", "X-User: alice")
	w.sends(429, "GET", "/a", "X-User: alice")
}

func TestReload_ErrorChangesNothing(t *testing.T) {
	good := limited("{name: l, key: global, rate: 1/1h}")
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
			w := made(t, good, func(o *Options) {
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
	w := made(t, limited("{key: global, rate: 1/1h}"), func(o *Options) {
		o.Agree = func(_ context.Context, _ *config.Config, swap func(int64)) error { swap(7); return away }
	})
	w.write(limited("{key: global, rate: 2/1h}"))
	report, err := w.Reload(t.Context())
	if err != nil || report.Generation != 7 || !errors.Is(report.Alone, away) {
		t.Errorf("Reload = %+v, %v; want generation 7, and why it is alone", report, err)
	}
}

func TestReload_SameContentIsNoChange(t *testing.T) {
	w := made(t, limited("{key: global, rate: 1/1h}"))
	if report, err := w.Reload(t.Context()); err != nil || report.Changed || report.Generation != 1 {
		t.Errorf("Reload = %+v, %v; want no change", report, err)
	}
}

// A retired generation serves the requests that it began, and is closed by the
// last of them.
func TestReload_RequestsEndInTheirGeneration(t *testing.T) {
	w := made(t, limited("{key: global, rate: 1/1h}"))
	g := w.enter()
	w.write("upstreams: {demo: echo}\nroutes: [{match: {path: /b}, upstream: demo}]\n")
	if _, err := w.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if users := g.users.Load(); users != 1 {
		t.Errorf("the retired generation has %d users; want the one request", users)
	}
	x := wanting("GET", "x", "/a")
	x.network = x.network.Masked()
	if err := g.table.match(x); err != nil {
		t.Errorf("the retired generation forgot its route: %v", err)
	}
	g.leave()
	if users := g.users.Load(); users != 0 {
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
	w := made(t, yaml("one"))
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
		w.write(yaml([]string{"two", "one"}[i%2]))
		if _, err := w.Reload(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	all.Wait()
}

// knocked runs Watch until the test ends and returns where its knocks arrive.
func knocked(t *testing.T, w *world) <-chan struct{} {
	t.Helper()
	knocks := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() {
		if err := w.Watch(ctx, func(context.Context) { knocks <- struct{}{} }); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); watch.Wait() })
	one(t, knocks, "a first look")
	return knocks
}

func one(t *testing.T, knocks <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-knocks:
	case <-time.After(10 * time.Second):
		t.Fatalf("no knock within 10 s after %s", what)
	}
}

func TestWatch_EditorsReplaceTheFile(t *testing.T) {
	w := made(t, limited("{key: global, rate: 1/1h}"))
	knocks := knocked(t, w)
	for _, rate := range []string{"2/1h", "3/1h"} {
		next := filepath.Join(filepath.Dir(w.path), ".weir.yaml.swp")
		if err := os.WriteFile(next, []byte(limited("{key: global, rate: "+rate+"}")), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, w.path); err != nil {
			t.Fatal(err)
		}
		one(t, knocks, "a rename")
	}
	w.write(limited("{key: global, rate: 4/1h}"))
	one(t, knocks, "a write")
}

func TestWatch_KubernetesSwapsALink(t *testing.T) {
	dir := t.TempDir()
	publish := func(version, yaml string) {
		t.Helper()
		data := filepath.Join(dir, "..data")
		err := errors.Join(
			os.Mkdir(filepath.Join(dir, version), 0o700),
			os.WriteFile(filepath.Join(dir, version, "weir.yaml"), []byte(yaml), 0o600),
			os.Symlink(version, data+"_tmp"),
			os.Rename(data+"_tmp", data),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	publish("..1", limited("{key: global, rate: 1/1h}"))
	path := filepath.Join(dir, "weir.yaml")
	if err := os.Symlink("..data/weir.yaml", path); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	w := made(t, limited("{key: global, rate: 1/1h}"), func(o *Options) { o.Path, o.Config = path, c })
	knocks := knocked(t, w)
	for i, version := range []string{"..2", "..3"} {
		publish(version, limited("{key: global, rate: "+[]string{"2/1h", "3/1h"}[i]+"}"))
		one(t, knocks, "a swapped link")
	}
}

func TestWatch_SeesNewIncludedFiles(t *testing.T) {
	w := made(t, "include: [more/*.yaml]\n"+limited("{key: global, rate: 1/1h}"))
	more := filepath.Join(filepath.Dir(w.path), "more")
	if err := os.Mkdir(more, 0o700); err != nil {
		t.Fatal(err)
	}
	knocks := knocked(t, w)
	if err := os.WriteFile(filepath.Join(more, "b.yaml"), []byte("keys: {b: {from: global}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	one(t, knocks, "a new included file")
}
