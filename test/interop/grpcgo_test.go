//go:build programs

package interop

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/acme"
	"github.com/weir-proxy/weir/proxy/cli"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/frontend"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
)

// What gRPC's own interop client asks of its own interop server is answered
// through Weir as without it, plain and in TLS.
func TestGRPC_InteropCases(t *testing.T) {
	addr := redistest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	startServer(t, exec.Command(program(t, "grpc-server"), "-port", port), addr)
	d := startProxy(t, "listen: {h2c: true}\nupstreams: {grpc: {targets: ['http://"+addr+"'], protocol: h2c}}\n"+
		"routes: [{match: {path: /*}, upstream: grpc, limits: [{key: client_ip, rate: 100000/1s}]}]\n")
	for how, args := range map[string][]string{
		"plain": interopArgs(d.plain),
		"tls":   append(interopArgs(d.secure), "-use_tls", "-use_test_ca", "-ca_file", d.ca, "-server_host_override", "localhost"),
	} {
		for _, name := range []string{
			"empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
			"timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response",
			"status_code_and_message", "special_status_message", "custom_metadata",
			"unimplemented_method", "unimplemented_service", "rpc_soak", "channel_soak",
			"orca_per_rpc", "orca_oob",
		} {
			t.Run(how+"/"+name, func(t *testing.T) {
				more := []string{"-test_case", name, "-soak_per_iteration_max_acceptable_latency_ms", "20000", "-soak_overall_timeout_seconds", "20"}
				if name == "orca_per_rpc" || name == "orca_oob" {
					more = append(more, "-service_config_json", `{"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}`)
				}
				mustRun(t, "grpc-client", append(more, args...)...)
			})
		}
	}
}

// interopArgs are the interop client's arguments for addr.
func interopArgs(addr string) []string {
	host, port, _ := net.SplitHostPort(addr)
	return []string{"-server_host", host, "-server_port", port}
}

// An authority is a pebble: it asks http at plain and tls-alpn at secure,
// whatever the name.
type authority struct {
	directory, ca string
	plain, secure string // host:port
	management    string
	trusted       *http.Client
}

// quarter is how long, in seconds, a certificate is good that will not be due while a
// test runs: the authority may want it renewed from the sixtieth day on.
const quarter = 90 * 24 * 3600

// authorized starts an authority whose certificates are good for so many seconds.
func authorized(t *testing.T, seconds int) authority {
	t.Helper()
	dir := t.TempDir()
	pair := issued(t, dir)
	dns, management := redistest.FreeAddr(t), redistest.FreeAddr(t)
	a := authority{plain: redistest.FreeAddr(t), secure: redistest.FreeAddr(t), management: redistest.FreeAddr(t), ca: pair.Cert}
	startServer(t, exec.Command(program(t, "pebble-challtestsrv"), "-dnsserver", dns, "-management", management,
		"-defaultIPv6", "", "-doh", "", "-http01", "", "-https01", "", "-tlsalpn01", ""), management)
	listen := redistest.FreeAddr(t)
	file, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": listen, "managementListenAddress": a.management,
		"certificate": pair.Cert, "privateKey": pair.Key, "httpPort": port(a.plain), "tlsPort": port(a.secure),
		"retryAfter": map[string]int{"authz": 1, "order": 1},
		"profiles":   map[string]any{"default": map[string]any{"description": "default", "validityPeriod": seconds}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "pebble.json"), file)
	c := exec.Command(program(t, "pebble"), "-config", filepath.Join(dir, "pebble.json"), "-dnsserver", dns)
	// Else it refuses one request in twenty, and who asks waits a minute before he
	// does so again.
	c.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0")
	startServer(t, c, listen)
	a.directory = fmt.Sprintf("https://localhost:%d/dir", port(listen))
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(pair.Cert)
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatalf("read %s: %v", pair.Cert, err)
	}
	a.trusted = &http.Client{Timeout: enough, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	return a
}

func port(addr string) (n int) {
	_, text, _ := net.SplitHostPort(addr)
	fmt.Sscan(text, &n)
	return n
}

// root is what vouches for the authority's certificates.
func (a authority) root(t *testing.T) *x509.CertPool {
	t.Helper()
	roots := x509.NewCertPool()
	answer, err := a.trusted.Get(fmt.Sprintf("https://localhost:%d/roots/0", port(a.management)))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if pem, err := io.ReadAll(answer.Body); err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatalf("root: %v, %s", err, pem)
	}
	return roots
}

// yaml is the configuration of a Weir that asks a for certificates.
func (a authority) yaml(challenge, storage string, domains ...string) string {
	return fmt.Sprintf("listen: {http: '%s', https: '%s', tls: {acme: {domains: [%s], email: ops@weir.example, directory: '%s', ca: '%s', storage: '%s', challenges: [%s]}}}\n"+
		"admin: {http: '127.0.0.1:0'}\nroutes: [{match: {path: /*}, upstream: echo, limits: [{key: global, rate: 1/1h}]}]\n",
		a.plain, a.secure, strings.Join(domains, ", "), a.directory, a.ca, storage, challenge)
}

// A running is a weir as a whole.
type running struct {
	log   *logtest.Log
	stop  func()
	admin string
}

// weir runs one with this configuration until stop or the end of the test.
func weir(t *testing.T, yaml string) running {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, path, []byte(yaml))
	ctx, cancel := context.WithCancel(context.Background())
	r := running{log: new(logtest.Log)}
	var ended sync.WaitGroup
	ended.Go(func() {
		if code := cli.Run(ctx, []string{"run", "-c", path}, cli.Env{Stdout: r.log, Stderr: r.log}); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
	r.stop = func() { cancel(); ended.Wait() }
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Logf("weir said:\n%s", r.log)
		}
	})
	await.Until(t, "weir serves", func() bool { return strings.Contains(r.log.String(), `"message":"serving"`) })
	for line := range strings.Lines(r.log.String()) {
		var l struct{ Message, Admin string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Message == "serving" {
			r.admin = l.Admin
		}
	}
	return r
}

// shown is the certificate that addr shows for name and roots vouch for; nil if
// it shows none.
func shown(addr, name string, roots *x509.CertPool) *x509.Certificate {
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots, ServerName: name})
	if err != nil {
		return nil
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0]
}

// Certificates are asked for, proved by either challenge although a limit of the
// route has room for one request, shown by name, and there again at once after a
// restart, without asking.
func TestACME_ObtainsAndKeeps(t *testing.T) {
	for _, challenge := range []string{"http-01", "tls-alpn-01"} {
		t.Run(challenge, func(t *testing.T) {
			a, storage := authorized(t, quarter), t.TempDir()
			roots := a.root(t)
			r := weir(t, a.yaml(challenge, storage, "api.weir.example", "www.weir.example"))
			serials := map[string]string{}
			for _, name := range []string{"api.weir.example", "www.weir.example"} {
				await.Until(t, "a certificate for "+name, func() bool { return shown(a.secure, name, roots) != nil })
				serials[name] = shown(a.secure, name, roots).SerialNumber.String()
			}
			if got := strings.Count(r.log.String(), `"message":"certificate obtained"`); got != 2 {
				t.Errorf("%d lines tell of certificates; want 2", got)
			}
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "api.weir.example"}}}
			answer, err := client.Get("https://" + a.secure + "/x")
			if err != nil || answer.StatusCode != 200 {
				t.Fatalf("answered %v, %v; want 200", answer, err)
			}
			answer.Body.Close()
			if got := ask(t, "GET", "http://"+r.admin+"/metrics"); !strings.Contains(string(got.body), `weir_certificate_expiry_timestamp_seconds{name="www.weir.example"} 1.`) {
				t.Errorf("no metric of the certificate's end in\n%s", got.body)
			}
			// A question of somebody else's is a request like others: the limit refuses it.
			if got := ask(t, "GET", "http://"+a.plain+"/.well-known/acme-challenge/x"); got.StatusCode != 429 {
				t.Errorf("answered %d; want 429", got.StatusCode)
			}
			r.stop()
			r = weir(t, a.yaml(challenge, storage, "api.weir.example", "www.weir.example"))
			for name, serial := range serials {
				if got := shown(a.secure, name, roots); got == nil || got.SerialNumber.String() != serial {
					t.Errorf("after a restart %s is shown %v; want the same certificate", name, got)
				}
			}
			r.stop()
			if said := r.log.String(); strings.Contains(said, `"certificate requested"`) || strings.Contains(said, `"level":"error"`) {
				t.Error("after a restart certificates are asked for that are there, or something is wrong")
			}
		})
	}
}

// An authority that cannot be asked, or refuses, is told of with its reason, and
// Weir serves what else it can.
func TestACME_SaysWhatIsWrong(t *testing.T) {
	a := authorized(t, quarter)
	wrong := a
	wrong.plain, wrong.secure = redistest.FreeAddr(t), redistest.FreeAddr(t) // nobody is there where the authority asks
	r := weir(t, strings.Replace(wrong.yaml("http-01", t.TempDir(), "api.weir.example"), wrong.directory, a.directory, 1))
	await.Until(t, "the reason is told", func() bool {
		for line := range strings.Lines(r.log.String()) {
			if strings.Contains(line, `"level":"error"`) && strings.Contains(line, "api.weir.example") && strings.Contains(line, "onnection") {
				return true
			}
		}
		return false
	})
	if got := ask(t, "GET", "http://"+wrong.plain+"/x"); got.StatusCode != 200 {
		t.Errorf("answered %d; want 200", got.StatusCode)
	}
	told := strings.Count(r.log.String(), `"level":"error"`)
	r.stop()
	if got := strings.Count(r.log.String(), `"level":"error"`); got != told {
		t.Error("ending is told of as an error")
	}
}

// managed serves the certificates for one name that the authority gives, until stop or
// the end of the test.
func managed(t *testing.T, a authority, c config.ACME, check time.Duration) (stop func()) {
	t.Helper()
	m, err := acme.New(t.Context(), c, acme.Options{Log: zerolog.New(zerolog.NewTestWriter(t)), HTTPSAddr: a.secure, Check: check})
	if err != nil {
		t.Fatal(err)
	}
	certs, err := frontend.LoadCertificates(nil, m, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", a.secure)
	if err != nil {
		t.Fatal(err)
	}
	file, err := config.LoadText("weir.yaml", []byte("routes: [{match: {path: /*}, upstream: echo}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := frontend.NewNetHTTPServer(http.NotFoundHandler(), file.Listen)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { s.ServeTLS(l, certs, nil) })
	all.Go(func() { m.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); s.Drain(ctx); all.Wait(); m.Close() })
	t.Cleanup(stop)
	return stop
}

// A certificate that will be due before it is looked at again is renewed, and the one
// before is shown until there is another. Nothing here ends within the test: the
// authority may choose any time within the certificate's hour, and all of them are
// before the next look.
func TestACME_Renews(t *testing.T) {
	a := authorized(t, 3600)
	// A name that no test has stopped in the middle of a renewal: who failed has to
	// wait, and that is kept by name for the whole process.
	c := config.ACME{Domains: []string{"renewed.weir.example"}, Directory: a.directory, CA: a.ca, Storage: t.TempDir(), ALPN: true}
	roots := a.root(t)
	stop := managed(t, a, c, 2*time.Hour)
	var first *x509.Certificate
	await.Until(t, "a certificate", func() bool { first = shown(a.secure, "renewed.weir.example", roots); return first != nil })
	stop()
	managed(t, a, c, 2*time.Hour)
	await.Until(t, "another one", func() bool {
		next := shown(a.secure, "renewed.weir.example", roots)
		if next == nil {
			t.Error("no certificate is shown meanwhile")
		}
		return next != nil && !next.Equal(first)
	})
}
