package node

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/test/redistest"
)

// opened is the store of a source whose Redis is at addr.
func opened(t *testing.T, o *configSource, addr string) store {
	t.Helper()
	o.machine.Redis.Addrs = []string{addr}
	s, err := openStore(o.machine, zerolog.Nop(), "v0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func TestBoot_MemoryServesTheFile(t *testing.T) {
	o, _ := newTestSource(t)
	b, err := memoryStore().boot(t.Context(), o)
	if err != nil || b.config != o.machine || b.number != 0 {
		t.Errorf("boot = %+v, %v; want the file, not numbered", b, err)
	}
}

// Without Redis it is what was kept, or else the file; never nothing.
func TestBoot_WithoutRedis(t *testing.T) {
	o, log := newTestSource(t)
	s := opened(t, o, "127.0.0.1:1")
	b, err := s.boot(t.Context(), o)
	if err != nil || b.config != o.machine || !strings.Contains(log.String(), "redis unreachable") {
		t.Errorf("boot = %v, log %s; want the file and a warning", err, log)
	}
	e := entryOf(o, 7, pushedBundle(t, "kept"))
	if err := o.keep(e); err != nil {
		t.Fatal(err)
	}
	b, err = s.boot(t.Context(), o)
	if err != nil || b.number != 7 || b.config.Hash != e.Bundle.Hash() || o.served() == nil {
		t.Errorf("boot = %+v, %v; want generation 7 from disk", b, err)
	}
	e = entryOf(o, 8, bundle.Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": "nonsense: 1\n"}})
	if err := o.keep(e); err != nil {
		t.Fatal(err)
	}
	if _, err = s.boot(t.Context(), o); err == nil || !strings.Contains(err.Error(), o.machine.Reload.Keep) {
		t.Errorf("boot on what no longer loads: %v; want the name of the file", err)
	}
}

// With Redis it is what was pushed last; a Redis that came back empty is given what
// was kept.
func TestBoot_WithRedis(t *testing.T) {
	server := redistest.Start(t)
	o, log := newTestSource(t)
	b, err := opened(t, o, server.Addr).boot(t.Context(), o)
	if err != nil || b.config != o.machine || b.number != 1 {
		t.Fatalf("the first boot = %+v, %v; want the file as generation 1", b, err)
	}
	e := entryOf(o, 7, pushedBundle(t, "kept"))
	if err := o.keep(e); err != nil {
		t.Fatal(err)
	}
	b, err = opened(t, o, server.Addr).boot(t.Context(), o)
	if err != nil || b.number != 7 || b.config.Hash != e.Bundle.Hash() || !strings.Contains(log.String(), "redis lost the pushed config") {
		t.Errorf("boot = %+v, %v, log %s; want generation 7 from disk", b, err, log)
	}
}
