package acme

import (
	"bytes"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/zap"

	"github.com/weir-proxy/weir/proxy/config"
)

// What the authority gives and how it is renewed is tested against one, in
// test/interop.

func TestNew_SaysWhatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	nonsense := filepath.Join(dir, "nonsense.pem")
	if err := os.WriteFile(nonsense, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := config.ACME{Domains: []string{"a.example"}, Directory: "https://localhost:1/dir", Storage: filepath.Join(dir, "acme"), HTTP: true, ALPN: true}
	at := Options{Log: zerolog.Nop(), HTTPAddr: "127.0.0.1:80", HTTPSAddr: "127.0.0.1:443"}
	for want, change := range map[string]func(*config.ACME, *Options){
		"nonsense.pem has no certificate": func(c *config.ACME, _ *Options) { c.CA = nonsense },
		"none.pem":                        func(c *config.ACME, _ *Options) { c.CA = filepath.Join(dir, "none.pem") },
		"make the folder":                 func(c *config.ACME, _ *Options) { c.Storage = filepath.Join(nonsense, "acme") },
		"address for challenges":          func(_ *config.ACME, o *Options) { o.HTTPAddr = "" },
	} {
		c, o := good, at
		change(&c, &o)
		if m, err := New(t.Context(), c, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v; want %q", m, err, want)
		}
	}
	m, err := New(t.Context(), good, at)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if info, err := os.Stat(good.Storage); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v, %v; want it for us alone", info, err)
	}
	if len(m.Certificates()) != 0 {
		t.Errorf("held %v", m.Certificates())
	}
}

// Only questions for names of ours have storage looked at, and none is answered
// that nobody waits for.
func TestAnswer_LeavesTheRest(t *testing.T) {
	m, err := New(t.Context(), config.ACME{Domains: []string{"a.example"}, Directory: "https://localhost:1/dir", Storage: t.TempDir(), HTTP: true}, Options{Log: zerolog.Nop(), HTTPAddr: "127.0.0.1:80"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, url := range []string{"http://a.example/", "http://A.example.:80/.well-known/acme-challenge/x", "http://b.example/.well-known/acme-challenge/x"} {
		if answer, ok := m.AnswerChallenge(httptest.NewRequest("GET", url, nil)); ok {
			t.Errorf("%s is answered %q", url, answer)
		}
	}
	for host, want := range map[string]bool{"a.example": true, "A.EXAMPLE.": true, "a.example:8080": true, "b.example": false, "": false} {
		if got := m.isManaged(host); got != want {
			t.Errorf("ours(%q) = %v", host, got)
		}
	}
}

func TestBridge(t *testing.T) {
	var out bytes.Buffer
	var leaving atomic.Bool
	log := zap.New(logBridge{zerolog.New(&out).Level(zerolog.InfoLevel), &leaving}).With(zap.String("name", "a.example"))
	log.Info("progress")
	log.Warn("odd", zap.Duration("after", time.Second))
	log.Error("wrong", zap.Error(errors.New("no such host")))
	leaving.Store(true)
	log.Error("broken off")
	const want = `{"level":"warn","name":"a.example","after":1000,"message":"odd"}
{"level":"error","name":"a.example","error":"no such host","message":"wrong"}
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
