package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
)

// runWeir runs a command to its end.
func runWeir(args ...string) (code int, stdout, stderr string) {
	var out, errs logtest.Log
	code = Run(context.Background(), args, Env{Stdout: &out, Stderr: &errs})
	return code, out.String(), errs.String()
}

// writeConfig writes a configuration that listens on free ports.
func writeConfig(t *testing.T, more string) string {
	t.Helper()
	return write(t, "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0'}\nroutes: [{match: {path: /a}, upstream: echo}]\nupstreams: {echo: echo}\n"+more)
}

func write(t *testing.T, yaml string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRun_Usage(t *testing.T) {
	if code, _, stderr := runWeir("sing"); code != exitUsage || !strings.Contains(stderr, "--help") {
		t.Errorf("weir sing = %d, %q; want %d and where to look", code, stderr, exitUsage)
	}
	if code, stdout, _ := runWeir("--help"); code != exitOK || !strings.Contains(stdout, "check") {
		t.Errorf("weir --help = %d, %q", code, stdout)
	}
}

// What is missing is told with the help of its command, and help is for reading.
func TestRun_LeadsToTheHelpOfItsCommand(t *testing.T) {
	for want, args := range map[string][]string{
		"--for=DURATION; weir keys ban --help shows its flags": {"keys", "ban", "phone=1"},
		"unknown flag --bogus; weir check --help":              {"check", "--bogus"},
		"unknown flag --bogus; weir --help":                    {"--bogus"},
		"unknown flag --x; weir schema --help":                 {"schema", "--x"},
	} {
		if code, _, stderr := runWeir(args...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("weir %q = %d, %q; want %q", args, code, stderr, want)
		}
	}
	if _, stdout, _ := runWeir("completion", "--help"); !strings.Contains(stdout, "source <(weir completion bash)\n") {
		t.Errorf("the lines of shells run together in %s", stdout)
	}
	if _, stdout, _ := runWeir("keys", "ban", "--help"); strings.Index(stdout, "  --for") > strings.Index(stdout, "  --admin") {
		t.Errorf("what is special about the command comes last in %s", stdout)
	}
	t.Setenv("WEIR_ADMIN", "")
	if _, _, stderr := runWeir("nodes", "--cacert", ""); strings.Contains(stderr, "http:///") {
		t.Errorf("an empty address is asked: %s", stderr)
	}
}

// A file may be named with or without -c; whoever forgets it is told so.
func TestRun_NamesItsFile(t *testing.T) {
	bad := write(t, "routes: []\n")
	for _, args := range [][]string{{"run", bad}, {"run", "-c", bad}, {"-c", bad}, {"check", bad}, {"check", "-c", bad}} {
		if code, stdout, stderr := runWeir(args...); code != exitFailure || !strings.Contains(stdout+stderr, bad+":1:1: there are no routes") {
			t.Errorf("weir %q = %d, %q; want the problems of the file", args, code, stderr)
		}
	}
	for want, args := range map[string][]string{
		"weir: -c needs a file; ":                                            {"run", "-c"},
		"weir: --log-level needs a value":                                    {"run", "--log-level"},
		"name one file":                                                      {"run", bad, "-c", bad},
		"weir: --rows needs a value; ":                                       {"top", "--rows"},
		"weir: write <log> ...; ":                                            {"simulate"},
		"is \"abc\", which is no whole number; weir rollback":                {"rollback", "abc"},
		"--outcome is \"foo\"; write one of allowed, refused":                {"decisions", "--outcome", "foo"},
		"weir: <program> is \"apache\"; write one of nginx, ":                {"convert", "apache", "x"},
		"weir: <state> is \"up\"; write one of on, off, show;":               {"maintenance", "up"},
		"weir: write <shell>; ":                                              {"completion"},
		"weir: write <method-or-id>; ":                                       {"explain"},
		"to serve a file write weir -c weir.yaml; ":                          {"weir.yaml"},
		"weir: --every is \"2\", which is no duration such as":               {"top", "--every", "2"},
		"weir: --every needs a value; ":                                      {"top", "--every"},
		"weir: --before is no time such as 2026-11-23T07:00:00Z; ":           {"decisions", "--before", "yesterday"},
		"weir: --config stands before the command; write it after check; ":   {"-c", "weir.yaml", "check"},
		"weir: unexpected argument foo; weir keys --help lists its commands": {"keys", "foo"},
		"weir: --for needs a value, and \"-1h\" looks like a flag; ":         {"keys", "ban", "phone=1", "--for", "-1h"},
	} {
		if code, _, stderr := runWeir(args...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("weir %q = %d, %q; want %q", args, code, stderr, want)
		}
	}
}

// Help tells of a command at any depth, and says which word it does not know.
func TestHelp(t *testing.T) {
	for _, row := range []struct {
		args        string
		code        int
		out, stderr string
	}{
		{"help", exitOK, "Usage: weir <command>", ""},
		{"help top", exitOK, "Usage: weir top ", ""},
		{"help keys get", exitOK, "Usage: weir keys get <key=value> ...", ""},
		{"keys", exitOK, "Usage: weir keys <command>", ""},
		{"help keys gets", exitUsage, "", "; weir help keys lists its commands"},
		{"help keis", exitUsage, "", `there is no command "keis"; did you mean keys? weir help lists the commands`},
	} {
		if code, out, stderr := runWeir(strings.Fields(row.args)...); code != row.code || !strings.HasPrefix(out, row.out) || !strings.Contains(stderr, row.stderr) {
			t.Errorf("weir %s = %d, %.60q, %q", row.args, code, out, stderr)
		}
	}
}

// A placeholder hides the default of a flag, so the help names it.
func TestHelp_NamesDefaults(t *testing.T) {
	parser, err := kong.New(&commands{})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		for _, f := range leaf.Flags {
			if f.Default != "" && f.PlaceHolder != "" && !strings.Contains(f.Help, "default: "+f.Default) {
				t.Errorf("%s --%s: the help %q does not name the default %s", leaf.FullPath(), f.Name, f.Help, f.Default)
			}
		}
	}
}

func TestRun_NoConfiguration(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range [][]string{nil, {"check"}} {
		if code, _, stderr := runWeir(args...); code != exitFailure || !strings.Contains(stderr, "weir.yaml") {
			t.Errorf("weir %q in an empty folder = %d, %q; want that it says what to write", args, code, stderr)
		}
	}
	if err := os.WriteFile("weir.yaml", []byte("routes: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, _ := runWeir("check"); code != exitFailure || !strings.Contains(stdout, "weir.yaml:1:1: there are no routes") {
		t.Errorf("weir check = %d, %q; want the problems of weir.yaml", code, stdout)
	}
	if code, _, stderr := runWeir("check", "a", "-c", "b"); code != exitUsage || !strings.Contains(stderr, "a and -c b: name one file") {
		t.Errorf("weir check a -c b = %d, %q; want that it names one file", code, stderr)
	}
}

func TestCheck(t *testing.T) {
	good := writeConfig(t, "")
	if code, stdout, _ := runWeir("check", good); code != exitOK || stdout != good+": ok\n" {
		t.Errorf("check of a good file = %d, %q", code, stdout)
	}
	if code, stdout, _ := runWeir("check", "--effective", good); code != exitOK || !strings.Contains(stdout, "on_store_failure: local") {
		t.Errorf("check --effective = %d, %q; want the defaults", code, stdout)
	}
	bad := writeConfig(t, "sturdy: true\nlisten: {}\n")
	if code, stdout, _ := runWeir("check", bad); code != exitFailure || strings.Count(stdout, "\n") != 2 || !strings.Contains(stdout, bad+":5:1: ") {
		t.Errorf("check of a bad file = %d, %q; want two problems with their places", code, stdout)
	}
}

// What nodes are to be given by a push, and is too long for one, is said by check already, with what to do.
func TestCheck_SaysWhatCannotBePushed(t *testing.T) {
	long := writeConfig(t, "lists: {friends: {key: client_ip, file: friends.txt, action: bypass}}\nstore: redis\nredis: {addrs: ['127.0.0.1:1']}\n")
	if err := os.WriteFile(filepath.Join(filepath.Dir(long), "friends.txt"), bytes.Repeat([]byte("203.0.113.77\n"), 9<<20/13), 0o600); err != nil {
		t.Fatal(err)
	}
	const warning = `9.1 MiB together, of which "friends.txt" has 9.1 MiB; 8 MiB can be pushed, some 500000 values of a list. `
	for source, warned := range map[string]bool{"file": false, "redis": true} {
		text, err := os.ReadFile(long)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(filepath.Dir(long), source+".yaml")
		if err := os.WriteFile(path, append(text, "reload: {source: "+source+"}\n"...), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, stdout, _ := runWeir("check", path); code != exitOK || strings.Contains(stdout, warning) != warned || !strings.HasSuffix(stdout, path+": ok\n") {
			t.Errorf("check with reload.source %s = %d, %q; want a warning: %v", source, code, stdout, warned)
		}
	}
}

func TestSchemaAndVersion(t *testing.T) {
	if code, stdout, _ := runWeir("schema"); code != exitOK || !json.Valid([]byte(stdout)) {
		t.Errorf("schema = %d, %q; want JSON", code, stdout)
	}
	if code, stdout, _ := runWeir("version"); code != exitOK || !strings.HasPrefix(stdout, "weir ") {
		t.Errorf("version = %d, %q", code, stdout)
	}
}

func TestHealthcheck(t *testing.T) {
	if code, _, stderr := runWeir("healthcheck", "--admin", "127.0.0.1:1"); code != exitFailure || stderr != "weir: no weir answers at http://127.0.0.1:1: connect: connection refused; name its admin listener with --admin\n" {
		t.Errorf("healthcheck of nobody = %d, %q; want that it says so", code, stderr)
	}
	c := healthcheckCommand{Config: writeConfig(t, "nonsense")}
	if got, err := c.configured(); got != defaultAdmin || err != nil {
		t.Errorf("admin address of a file that does not load = %s, %v; want %s", got, err, defaultAdmin)
	}
	t.Setenv("WEIR_ADMIN", "")
	for _, path := range []string{filepath.Join(t.TempDir(), "none.yaml"), t.TempDir()} {
		if code, _, stderr := runWeir("healthcheck", "-c", path); code != exitFailure || !strings.HasPrefix(stderr, path+": cannot be read: ") {
			t.Errorf("healthcheck -c %s = %d, %q; want that it cannot be read", path, code, stderr)
		}
	}
}

func TestDefaultAdminIsTheLoaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte("routes: [{match: {path: /}, upstream: 'http://127.0.0.1:1'}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path)
	if err != nil || c.Admin.HTTP != defaultAdmin {
		t.Errorf("admin = %v, %v; want %s", c, err, defaultAdmin)
	}
}

// startWeir runs weir until the test ends, and returns its log and what the log
// says of a message, as soon as it says it.
func startWeir(t *testing.T, path string, reload chan os.Signal) (stop func() int, says func(message string) map[string]any) {
	t.Helper()
	var errs logtest.Log
	ctx, cancel := context.WithCancel(context.Background())
	code := make(chan int, 1)
	go func() {
		code <- Run(ctx, []string{"run", "-c", path}, Env{Stdout: &errs, Stderr: &errs, Reload: reload})
	}()
	stop = sync.OnceValue(func() int { cancel(); return <-code })
	t.Cleanup(func() { stop() })
	says = func(message string) (said map[string]any) {
		t.Helper()
		await.Until(t, "a log line "+message, func() bool {
			for line := range strings.Lines(errs.String()) {
				var fields map[string]any
				if json.Unmarshal([]byte(line), &fields) == nil && fields["message"] == message {
					said = fields
					return true
				}
			}
			return false
		}, &errs)
		return said
	}
	return stop, says
}

func TestRun_ServesUntilItIsToldToEnd(t *testing.T) {
	path := writeConfig(t, "")
	reload := make(chan os.Signal, 1)
	stop, says := startWeir(t, path, reload)
	started := says("serving")
	answer, err := http.Get("http://" + started["http"].(string) + "/a")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != 200 {
		t.Errorf("status %d", answer.StatusCode)
	}
	if code, _, stderr := runWeir("healthcheck", "--admin", started["admin"].(string)); code != exitOK {
		t.Errorf("healthcheck = %d, %q", code, stderr)
	}
	if err := os.WriteFile(path, []byte("routes: nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reload <- os.Interrupt // any signal on that channel is the one to reload
	says("reload refused")
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d; want %d", code, exitOK)
	}
	says("drained")
}

func TestRun_PortTaken(t *testing.T) {
	_, says := startWeir(t, writeConfig(t, ""), nil)
	taken := says("serving")["http"].(string)
	path := write(t, "listen: {http: '"+taken+"'}\nadmin: {http: '127.0.0.1:0'}\nroutes: [{match: {path: /a}, upstream: 'http://127.0.0.1:1'}]\n")
	if code, _, stderr := runWeir("run", "-c", path); code != exitFailure || !strings.HasPrefix(stderr, "weir: "+path+": listen.http: "+taken+": bind: address already in use; ") {
		t.Errorf("a second weir on one port = %d, %q; want that it says so", code, stderr)
	}
}

func TestRun_LibrariesLogJSON(t *testing.T) {
	var errs logtest.Log
	path := writeConfig(t, "")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if code := Run(ctx, []string{"run", "-c", path, "--log-level", "debug"}, Env{Stdout: &errs, Stderr: &errs}); code != exitOK {
		t.Fatalf("exit code %d:\n%s", code, errs.String())
	}
	stdlog.Print("Unsolicited response")
	var last map[string]any
	lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last["error"] != "Unsolicited response" || last["level"] != "debug" {
		t.Errorf("the last line is %s; want what the library said, as JSON at debug level", lines[len(lines)-1])
	}
}

// A process that lives is found whatever its file says by now: nothing, another
// address, or nonsense.
func TestHealthcheck_FindsARunningWeir(t *testing.T) {
	path := writeConfig(t, "")
	stop, says := startWeir(t, path, nil)
	says("serving")
	for name, text := range map[string]string{
		"a typo":          "admin: {htp: '127.0.0.1:9901'}\nroutes: nonsense\n",
		"no YAML":         "{{{",
		"another address": "admin: {http: '127.0.0.1:1'}\nroutes: [{match: {path: /a}, respond: {body: a}}]\n",
		"nothing":         "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, stderr := runWeir("healthcheck", "-c", path); code != exitOK {
			t.Errorf("with %s in the file: %d, %q; want that it is found", name, code, stderr)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := runWeir("healthcheck", "-c", path); code != exitOK {
		t.Errorf("without the file: %d, %q; want that it is found", code, stderr)
	}
	stop()
	if code, _, _ := runWeir("healthcheck", "-c", path, "--within", "500ms"); code != exitFailure {
		t.Errorf("after its end: %d; want %d", code, exitFailure)
	}
}

// writeFile writes a file to a folder of its own.
func writeFile(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificateOf writes the certificate of a server and its key as PEM, into one file.
func certificateOf(t *testing.T, s *httptest.Server) (certificate, both string) {
	t.Helper()
	pair := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	return writeFile(t, "ca.pem", cert), writeFile(t, "both.pem", append(cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...))
}

func TestTLSFlags_WhatIsWrongWithTheFiles(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	ca, both := certificateOf(t, s)
	none := writeFile(t, "none.pem", []byte("nothing"))
	for _, row := range []struct {
		flags accessFlags
		want  string // "" for none
	}{
		{accessFlags{}, ""},
		{accessFlags{CACert: ca}, ""},
		{accessFlags{Cert: both}, ""}, // one file has both
		{accessFlags{Cert: ca, Key: both}, ""},
		{accessFlags{CACert: "/nowhere"}, "--cacert: open /nowhere: no such file or directory"},
		{accessFlags{CACert: none}, "--cacert " + none + ": there is no certificate in this file; name one with -----BEGIN CERTIFICATE-----"},
		{accessFlags{Key: both}, "--key without --cert: write both, they belong together"},
		{accessFlags{Cert: ca}, "--cert: tls: found a certificate rather than a key"},
		{accessFlags{Cert: "/nowhere"}, "--cert: open /nowhere: no such file or directory"},
	} {
		got := ""
		if err := row.flags.Validate(); err != nil {
			got = err.Error()
		}
		if row.want == "" && got != "" || !strings.HasPrefix(got, row.want) {
			t.Errorf("%+v: %q; want %q", row.flags, got, row.want)
		}
	}
}

// An admin listener in TLS is asked with the authority and the certificate of the flags,
// over HTTP/1.1.
func TestTLSFlags_ReachAnAdminListener(t *testing.T) {
	var proto string
	var presented int
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proto, presented = r.Proto, len(r.TLS.PeerCertificates)
		w.Write([]byte(`{"history":[]}`))
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that fail on purpose
	s.StartTLS()
	defer s.Close()
	ca, both := certificateOf(t, s)
	if code, _, stderr := runWeir("history", "--admin", s.URL); code != exitFailure || !strings.Contains(stderr, "certificate") {
		t.Errorf("without --cacert: %d, %q; want that the certificate is refused", code, stderr)
	}
	for _, row := range []struct {
		args []string
		want int
	}{{nil, 0}, {[]string{"--cert", both}, 1}} {
		code, out, stderr := runWeir(append([]string{"history", "--admin", s.URL, "--cacert", ca}, row.args...)...)
		if code != exitOK || out != "nothing was pushed yet\n" || proto != "HTTP/1.1" || presented != row.want {
			t.Errorf("history %q = %d, %q, %q, over %s with %d certificates; want HTTP/1.1 with %d", row.args, code, out, stderr, proto, presented, row.want)
		}
	}
	code, _, stderr := runWeir("history", "--admin", s.URL, "--key", both)
	if code != exitUsage || !strings.Contains(stderr, "--key without --cert") {
		t.Errorf("--key alone: %d, %q; want %d and what is missing", code, stderr, exitUsage)
	}
}

// accessLine is a line of an access log at a time of day.
func accessLine(clock string) string {
	return `192.0.2.1 - - [22/Nov/2026:` + clock + ` +0000] "GET /a HTTP/1.1" 200 1` + "\n"
}

// Of one route it is said whether that is under maintenance: by itself, or with all. It must be a route.
func TestMaintenance_OfOneRoute(t *testing.T) {
	const unknown = `{"detail":"there is no route \"nosuch\"; write one of orders, shop","status":400}`
	answers := map[string]string{"/api/v1/maintenance": `{"on":[{"kind":"maintenance","route":"shop","at":"2026-01-31T07:26:00Z","who":"ann"}],"everywhere":true}`, "/api/v1/top": `{}`}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("route") == "nosuch" {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, unknown)
			return
		}
		io.WriteString(w, answers[r.URL.Path])
	}))
	t.Cleanup(s.Close)
	for args, want := range map[string]string{"show": "shop", "show shop": "shop", "show orders": "route orders is not under maintenance\n"} {
		code, out, stderr := runWeir(append([]string{"maintenance", "--admin", s.URL}, strings.Fields(args)...)...)
		if code != exitOK || !strings.Contains(out, want) || strings.Contains(out, "shop") != (want == "shop") {
			t.Errorf("weir maintenance %s = %d, %q, %q; want %q", args, code, out, stderr, want)
		}
	}
	if code, out, stderr := runWeir("maintenance", "show", "nosuch", "--admin", s.URL); code != exitFailure || out != "" || stderr != "weir: there is no route \"nosuch\"; write one of orders, shop\n" {
		t.Errorf("weir maintenance show nosuch = %d, %q, %q; want the routes that there are", code, out, stderr)
	}
}

// While Redis is unreachable, the node that is asked is known, and why no other is; programs get the error.
func TestNodes_WithoutRedis(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/top" {
			io.WriteString(w, `{"nodes":[{"node":"a","said":"ok"},{"node":"all other nodes","said":"not asked: redis is unreachable"}]}`)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"detail":"redis is unreachable","live":[{"id":"a","address":"10.0.0.1:9901","generation":7}],"status":503}`)
	}))
	t.Cleanup(s.Close)
	if code, out, stderr := runWeir("nodes", "--admin", s.URL); code != exitOK || !strings.Contains(out, "\na                ok ") || !strings.Contains(out, "  7           ") || !strings.Contains(out, "  10.0.0.1:9901  ") || !strings.Contains(out, "\nall other nodes  not asked: redis is unreachable ") {
		t.Errorf("nodes = %d, %q, %q; want the node and why no other", code, out, stderr)
	}
	if code, out, stderr := runWeir("nodes", "--json", "--admin", s.URL); code != exitFailure || out != "" || stderr != "weir: redis is unreachable\n" {
		t.Errorf("nodes --json = %d, %q, %q; want the error", code, out, stderr)
	}
}
