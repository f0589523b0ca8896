package acme

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A testManager is a Manager that runs behind a listener of its own.
type testManager struct {
	*Manager
	log  *logtest.Log
	stop func() // ends it; safe to call twice
}

// startManager runs a Manager for names that asks a, with its certificates in
// storage.
func startManager(t *testing.T, a *authority, storage string, names ...string) *testManager {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.plain = l.Addr().String()
	m := &testManager{log: new(logtest.Log)}
	c := config.ACME{Domains: names, Directory: a.URL + "/dir", CA: a.ca, Storage: storage, HTTP: true}
	if m.Manager, err = New(t.Context(), c, Options{Log: zerolog.New(m.log), HTTPAddr: a.plain, Check: a.check}); err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := m.AnswerChallenge(r)
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(answer)
	})}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { s.Serve(l) })
	all.Go(func() { m.Run(ctx) })
	m.stop = sync.OnceFunc(func() { cancel(); s.Close(); all.Wait(); m.Close() })
	t.Cleanup(m.stop)
	return m
}

// hello is what a client says that asks for name.
func hello(t *testing.T, name string) *tls.ClientHelloInfo {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { client.Close(); server.Close() })
	return &tls.ClientHelloInfo{ServerName: name, Conn: server}
}

// Each name gets a certificate of its own, which is shown to who asks for that name;
// who asks for another sees the first. A weir that starts again asks for none.
func TestRun_ObtainsACertificateForEachName(t *testing.T) {
	a, storage := newAuthority(t), t.TempDir()
	m := startManager(t, a, storage, "a.example", "b.example")
	await.Until(t, "both names have certificates", func() bool { return len(m.Certificates()) == 2 }, m.log)
	for asked, want := range map[string]string{"a.example": "a.example", "b.example": "b.example", "": "a.example", "c.example": "a.example"} {
		c, err := m.Certificate(hello(t, asked))
		if err != nil || !slices.Equal(c.Leaf.DNSNames, []string{want}) {
			t.Errorf("%q is shown %v, %v; want %s", asked, c, err, want)
		}
	}
	if !slices.Equal(m.Names(), []string{"a.example", "b.example"}) {
		t.Errorf("the names are %q", m.Names())
	}
	m.stop()
	if got := strings.Count(m.log.String(), `"renewed":false,"message":"certificate obtained"`); got != 2 || strings.Contains(m.log.String(), `"level":"error"`) {
		t.Errorf("logged\n%s", m.log)
	}
	again := startManager(t, a, storage, "a.example", "b.example")
	if len(again.Certificates()) != 2 {
		t.Errorf("started again it holds %d certificates; want both, before it runs", len(again.Certificates()))
	}
	again.stop()
	if got := a.asked(); len(got) != 2 {
		t.Errorf("the authority was asked for %q; want each name once", got)
	}
}

// A certificate that is due when Weir starts is shown until there is another.
func TestRun_RenewsWhatIsDue(t *testing.T) {
	a, storage := newAuthority(t), t.TempDir()
	a.age = lifetime - time.Hour
	m := startManager(t, a, storage, "a.example")
	await.Until(t, "a certificate that is soon over", func() bool { return len(m.Certificates()) == 1 }, m.log)
	m.stop()
	a.mu.Lock()
	a.age = 0
	a.mu.Unlock()
	again := startManager(t, a, storage, "a.example")
	first := again.Certificates()
	await.Until(t, "the certificate is renewed", func() bool {
		now := again.Certificates()
		if len(now) == 0 {
			t.Fatal("none is shown while it is renewed")
		}
		return now[0].NotAfter.After(first[0].NotAfter)
	}, again.log)
	if !strings.Contains(again.log.String(), `"renewed":true,"message":"certificate obtained"`) {
		t.Errorf("logged\n%s", again.log)
	}
}

// An authority that does not answer does not hold up the end, neither when certificates are looked at first nor later.
func TestRun_EndsWhileTheAuthorityIsSilent(t *testing.T) {
	a, storage := newAuthority(t), t.TempDir()
	m := startManager(t, a, storage, "a.example")
	await.Until(t, "a certificate", func() bool { return len(m.Certificates()) == 1 }, m.log)
	m.stop()
	a.hangs.Store(true)
	for len(a.renewal) > 0 {
		<-a.renewal
	}
	a.check = time.Millisecond
	again := startManager(t, a, storage, "a.example")
	await.Value(t, a.renewal, "a question of the renewal")
	ended := make(chan struct{})
	go func() {
		again.stop()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second): // a node waits no longer, and says that it was in vain
		t.Error("it waits for the authority")
	}
}

// A server that says whether certificates are revoked (OCSP) and does not answer holds up neither a certificate nor the
// next start.
func TestRun_AsksNobodyForTheStatusOfACertificate(t *testing.T) {
	a, storage := newAuthority(t), t.TempDir()
	a.status = "http://" + sockettest.Listen(t).Addr().String() // accepts and does not answer
	m := startManager(t, a, storage, "a.example")
	await.Until(t, "a certificate", func() bool { return len(m.Certificates()) == 1 }, m.log)
	m.stop()
	if again := startManager(t, a, storage, "a.example"); len(again.Certificates()) != 1 {
		t.Errorf("started again it has no certificate:\n%s", again.log)
	}
}

// What the authority says against an order stands in the log, with the name, and
// ends nothing: a restart or the next attempt may do.
func TestRun_LogsWhatTheAuthorityRefuses(t *testing.T) {
	a := newAuthority(t)
	a.refuses = "rejectedIdentifier"
	m := startManager(t, a, t.TempDir(), "a.example")
	await.Until(t, "the refusal is logged", func() bool {
		return strings.Contains(m.log.String(), "not for you") && strings.Contains(m.log.String(), "a.example")
	}, m.log)
	if _, err := m.Certificate(hello(t, "a.example")); err == nil {
		t.Error("there is a certificate")
	}
	began := time.Now()
	m.stop()
	if took := time.Since(began); took > await.Limit/2 {
		t.Errorf("it took %v to end while it waits to ask again", took)
	}
	if strings.Contains(m.log.String(), "certificate order failed") {
		t.Errorf("ending is logged as a failure:\n%s", m.log)
	}
}

// A certificate or key that was cut off, as by a full disk, is said, and asked for anew.
func TestRun_ReplacesWhatCannotBeUsed(t *testing.T) {
	for _, kind := range []string{"crt", "key"} {
		a, storage := newAuthority(t), t.TempDir()
		m := startManager(t, a, storage, "a.example")
		await.Until(t, "there is a certificate", func() bool { return len(m.Certificates()) == 1 }, m.log)
		m.stop()
		files, err := filepath.Glob(filepath.Join(storage, "certificates", "*", "a.example", "a.example."+kind))
		if err != nil || len(files) != 1 {
			t.Fatalf("files of the %s: %q, %v", kind, files, err)
		}
		if err := os.WriteFile(files[0], []byte("cut off"), 0o600); err != nil {
			t.Fatal(err)
		}
		again := startManager(t, a, storage, "a.example")
		if !strings.Contains(again.log.String(), `"name":"a.example","message":"certificate in storage cannot be used"`) {
			t.Errorf("%s: logged\n%s", kind, again.log)
		}
		await.Until(t, kind+": it is asked for anew", func() bool { return len(again.Certificates()) == 1 })
		if got := a.asked(); len(got) != 2 {
			t.Errorf("%s: the authority was asked for %q; want the name twice", kind, got)
		}
	}
}

// A storage that cannot be written when Weir starts, as one on a full disk, costs a certificate only until it can.
func TestRun_OrdersAgainWhenTheStorageIsBack(t *testing.T) {
	a, storage := newAuthority(t), t.TempDir()
	inTheWay := filepath.Join(storage, "locks") // a directory, otherwise
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := startManager(t, a, storage, "a.example")
	await.Until(t, "the failure is logged", func() bool { return strings.Contains(m.log.String(), "certificate order failed") }, m.log)
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "there is a certificate", func() bool { return len(m.Certificates()) == 1 }, m.log)
}
