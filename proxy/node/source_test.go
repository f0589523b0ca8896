package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
)

// newTestSource is the source of a node that serves what is pushed and keeps it.
func newTestSource(t *testing.T) (*configSource, *logtest.Log) {
	t.Helper()
	keep := filepath.Join(t.TempDir(), "kept.json")
	path := writeConfig(t, "store: redis\nredis: {addrs: ['127.0.0.1:1']}\nreload: {source: redis, keep: "+keep+"}\n")
	c, err := config.Load(path)
	check(t, err)
	log := new(logtest.Log)
	load := func() (*config.Config, error) { return config.Load(path) }
	return &configSource{path: path, load: load, machine: c, log: zerolog.New(log)}, log
}

// pushedBundle is a configuration as it is pushed.
func pushedBundle(t *testing.T, body string) bundle.Bundle {
	t.Helper()
	b, err := bundle.Pack(write(t, "routes: [{match: {path: /pushed}, respond: {body: '"+body+"'}}]\n"))
	check(t, err)
	return b
}

// entryOf is an entry of the history as a node with that source writes it.
func entryOf(o *configSource, generation int64, b bundle.Bundle) cluster.Entry {
	b = o.seal().Sign(b)
	return cluster.Entry{Entry: view.Entry{Generation: generation, Hash: b.Hash()}, Packed: o.seal().Pack(b), Bundle: b}
}

func TestSource_ReadsTheFileUntilSomethingIsPushed(t *testing.T) {
	o, log := newTestSource(t)
	c, err := o.read(t.Context())
	if err != nil || c.Hash != o.machine.Hash {
		t.Fatalf("read = %v; want the file", err)
	}
	b := pushedBundle(t, "a")
	o.bundle.Store(new(b))
	if c, err = o.read(t.Context()); err != nil || c.Hash != b.Hash() || c.Routes[0].Match.Path != "/pushed" {
		t.Fatalf("read = %+v, %v; want what was pushed", c, err)
	}
	if log.String() != "" {
		t.Errorf("the file is as it was, and the log says %s", log)
	}
	replaceFile(t, o.path, "routes: []\n")
	if c, err = o.read(t.Context()); err != nil || c.Hash != b.Hash() {
		t.Errorf("after an edit of the file: %v; want what was pushed", err)
	}
	if !strings.Contains(log.String(), "push it with weir push") {
		t.Errorf("the log says %q; want what to do about the edit", log)
	}
}

func TestSource_KeepsWhatWasPushed(t *testing.T) {
	o, _ := newTestSource(t)
	if k, err := o.readKept(); err != nil || k.Bundle.Main != "" {
		t.Errorf("before the first push: %+v, %v; want nothing", k, err)
	}
	for generation := range int64(2) {
		e := entryOf(o, generation+1, pushedBundle(t, "a"))
		e.Author, e.At = "ann", time.Unix(1, 0).UTC()
		check(t, o.keep(e))
		k, err := o.readKept()
		if err != nil || k.Generation != e.Generation || k.Author != "ann" || k.Bundle.Hash() != e.Bundle.Hash() {
			t.Errorf("recalled %+v, %v; want %+v", k, err, e)
		}
	}
	files, _ := os.ReadDir(filepath.Dir(o.machine.Reload.Keep))
	if info, err := os.Stat(o.machine.Reload.Keep); err != nil || info.Mode().Perm() != 0o600 || len(files) != 1 {
		t.Errorf("%v, %v, %v; want one file for its owner alone", info, files, err)
	}
}

// What 0.1.0 has kept is read, and stays readable when it is kept again, as at each start.
func TestSource_KeepsWhatAnOlderVersionHasKept(t *testing.T) {
	o, _ := newTestSource(t)
	b := pushedBundle(t, "a")
	text, err := json.Marshal(map[string]any{"generation": 7, "hash": b.Hash(), "bundle": b})
	check(t, err)
	replaceFile(t, o.machine.Reload.Keep, string(text))
	for range 2 {
		k, err := o.readKept()
		if err != nil || k.Generation != 7 || !k.Bundle.Same(b) {
			t.Fatalf("recalled %+v, %v", k, err)
		}
		check(t, o.keep(k))
	}
}

func TestSource_KeepsNothingWithoutAPlace(t *testing.T) {
	o, _ := newTestSource(t)
	o.machine.Reload.Keep = ""
	if err := o.keep(cluster.Entry{Entry: view.Entry{Generation: 1}}); err != nil {
		t.Error(err)
	}
	if k, err := o.readKept(); err != nil || k.Generation != 0 {
		t.Errorf("recalled %+v, %v; want nothing", k, err)
	}
}

func TestSource_AFileThatCannotBeReadOrWritten(t *testing.T) {
	o, _ := newTestSource(t)
	replaceFile(t, o.machine.Reload.Keep, "{")
	if k, err := o.readKept(); err == nil || k.Bundle.Main != "" {
		t.Errorf("half a file: %+v, %v; want an error", k, err)
	}
	o.machine.Reload.Keep = filepath.Join(o.machine.Reload.Keep, "below", "a file")
	if err := o.keep(cluster.Entry{Entry: view.Entry{Generation: 1}}); err == nil {
		t.Error("kept where no folder is: no error")
	}
}

// opened is the store of a source whose Redis is at addr.
func opened(t *testing.T, o *configSource, addr string) store {
	t.Helper()
	o.machine.Redis.Addrs = []string{addr}
	s, err := openStore(o.machine, zerolog.Nop(), "v0.0.1")
	check(t, err)
	t.Cleanup(s.close)
	return s
}

func TestBoot_MemoryServesTheFile(t *testing.T) {
	o, _ := newTestSource(t)
	c, number, err := memoryStore().boot(t.Context(), o)
	if err != nil || c != o.machine || number != 0 {
		t.Errorf("boot = generation %d, %v; want the file, not numbered", number, err)
	}
}

// Without Redis it is what was kept, or else the file; never nothing.
func TestBoot_WithoutRedis(t *testing.T) {
	o, log := newTestSource(t)
	s := opened(t, o, "127.0.0.1:1")
	c, _, err := s.boot(t.Context(), o)
	if err != nil || c != o.machine || !strings.Contains(log.String(), "redis unreachable") {
		t.Errorf("boot = %v, log %s; want the file and a warning", err, log)
	}
	e := entryOf(o, 7, pushedBundle(t, "kept"))
	check(t, o.keep(e))
	c, number, err := s.boot(t.Context(), o)
	if err != nil || number != 7 || c.Hash != e.Bundle.Hash() || o.bundle.Load() == nil {
		t.Errorf("boot = generation %d, %v; want generation 7 from disk", number, err)
	}
	e = entryOf(o, 8, bundle.Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": "nonsense: 1\n"}})
	check(t, o.keep(e))
	if _, _, err = s.boot(t.Context(), o); err == nil || !strings.Contains(err.Error(), o.machine.Reload.Keep) {
		t.Errorf("boot on what no longer loads: %v; want the name of the file", err)
	}
}

// With Redis it is what was pushed last; a Redis that came back empty is given what
// was kept.
func TestBoot_WithRedis(t *testing.T) {
	server := redistest.Start(t)
	o, log := newTestSource(t)
	c, number, err := opened(t, o, server.Addr).boot(t.Context(), o)
	if err != nil || c != o.machine || number != 1 {
		t.Fatalf("the first boot = generation %d, %v; want the file as generation 1", number, err)
	}
	e := entryOf(o, 7, pushedBundle(t, "kept"))
	check(t, o.keep(e))
	c, number, err = opened(t, o, server.Addr).boot(t.Context(), o)
	if err != nil || number != 7 || c.Hash != e.Bundle.Hash() || !strings.Contains(log.String(), "redis lost the pushed config") {
		t.Errorf("boot = generation %d, %v, log %s; want generation 7 from disk", number, err, log)
	}
}

// A node that has started with what was kept gives it to a Redis that comes back without it, empty or as an older copy;
// not to one to which something else was pushed later.
func TestBoot_RedisComesBackWithoutThePush(t *testing.T) {
	for name, c := range map[string]struct {
		found time.Duration // when what Redis has was pushed, after what was kept; 0 if it is empty
		want  []string
	}{
		"empty": {0, []string{"7 kept"}}, "older": {-time.Hour, []string{"7 kept", "6 found"}}, "later": {time.Hour, []string{"8 found", "7 kept"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			at := time.Unix(1_000_000, 0).UTC()
			o, _ := newTestSource(t)
			if c.found != 0 {
				fills(t, server.Addr, 6, at.Add(c.found))
			}
			kept := entryOf(o, 7, pushedBundle(t, "kept"))
			kept.At, kept.Author = at, "kept"
			check(t, o.keep(kept))
			server.Signal(syscall.SIGSTOP)
			s := opened(t, o, server.Addr)
			if _, number, err := s.boot(t.Context(), o); err != nil || number != 7 {
				t.Fatalf("boot = %d, %v; want what was kept", number, err)
			}
			server.Signal(syscall.SIGCONT)
			await.Until(t, "redis is reachable", func() bool { _, err := s.check(t.Context()); return err == nil })
			if done, err := s.cluster.Restore(t.Context()); err != nil || !done {
				t.Errorf("Restore = %v, %v", done, err)
			}
			history, err := s.cluster.History(t.Context())
			var got []string
			for _, e := range history {
				got = append(got, fmt.Sprint(e.Generation, " ", e.Author))
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("history %q, %v; want %q", got, err, c.want)
			}
			again, _ := newTestSource(t) // with Redis, a start leads to the same
			again.machine.Reload.Keep = o.machine.Reload.Keep
			want, _, _ := strings.Cut(c.want[0], " ")
			if _, number, err := opened(t, again, server.Addr).boot(t.Context(), again); err != nil || fmt.Sprint(number) != want {
				t.Errorf("a second boot = %d, %v; want %s", number, err, want)
			}
		})
	}
}

// A node that starts with a Redis that came back as an older copy serves what it kept.
func TestBoot_WithAnOlderCopyOfRedis(t *testing.T) {
	server := redistest.Start(t)
	at := time.Unix(1_000_000, 0).UTC()
	fills(t, server.Addr, 6, at)
	for after, want := range map[time.Duration]int64{time.Hour: 7, -time.Hour: 6} {
		o, _ := newTestSource(t)
		kept := entryOf(o, 7, pushedBundle(t, "kept"))
		kept.At = at.Add(after)
		check(t, o.keep(kept))
		if _, number, err := opened(t, o, server.Addr).boot(t.Context(), o); err != nil || number != want {
			t.Errorf("what was kept %v after what redis has: boot = %d, %v; want %d", after, number, err, want)
		}
	}
}

// fills lets a Redis have a push.
func fills(t *testing.T, addr string, generation int64, at time.Time) {
	t.Helper()
	o, _ := newTestSource(t)
	s := opened(t, o, addr)
	e := entryOf(o, generation, pushedBundle(t, "found"))
	e.At, e.Author = at, "found"
	s.cluster.Adopt(e, o.machine)
	if done, err := s.cluster.Restore(t.Context()); err != nil || !done {
		t.Fatalf("Restore = %v, %v", done, err)
	}
}
