package test

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
)

// trustYAML is a configuration of listen.decide with more fields.
func trustYAML(more string) string {
	return `listen: {http: none, decide: {http: "127.0.0.1:0", dialect: haproxy, within: 30s, ` + more + `}}
admin: {http: "127.0.0.1:0"}
keys: {phone: header:X-Phone}
routes: [{name: sms, match: {path: /sms}, limits: [{name: phone, key: phone, rate: 1/1h}]}]
`
}

// asksDecision asks about a request, and returns the status and the body of the answer.
func asksDecision(t *testing.T, client *http.Client, url, token string) (status int, body string, err error) {
	t.Helper()
	r, err := http.NewRequest("GET", url+"/decide", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"X-Original-Method": "POST", "X-Original-URI": "/sms", "X-Original-Host": "api.example.com", "X-Forwarded-For": "192.0.2.1",
		"X-Phone": "1", "X-Weir-Token": token,
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// Over TLS with client_ca and token, only a peer that has a certificate of that authority and the token is
// answered; nobody else uses up a limit.
func TestDecide_AsksPeersForCertificateAndToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeCertificate(t, dir)
	peers, strangers := newAuthority(t), newAuthority(t)
	write(t, filepath.Join(dir, "peers.pem"), peers.pem)
	peers.issues(t, filepath.Join(dir, "peer.pem"))
	strangers.issues(t, filepath.Join(dir, "eve.pem"))
	write(t, filepath.Join(dir, "weir.yaml"), trustYAML("tls: {cert: cert.pem, key: key.pem}, client_ca: peers.pem, token: 0123456789abcdef"))
	address := startWith(t, dir).WaitForLog("serving", nil).Text("decide")
	for _, c := range []struct {
		cert, token string
		status      int // 0 for none
	}{
		{"", "0123456789abcdef", 0}, {"eve.pem", "0123456789abcdef", 0}, {"peer.pem", "", 403}, {"peer.pem", "0123456789abcdeF", 403},
		{"peer.pem", "0123456789abcdef", 200}, {"peer.pem", "0123456789abcdef", 429},
	} {
		secure := &tls.Config{InsecureSkipVerify: true}
		if c.cert != "" {
			own, err := os.ReadFile(filepath.Join(dir, c.cert))
			if err != nil {
				t.Fatal(err)
			}
			pair, err := tls.X509KeyPair(own, own)
			if err != nil {
				t.Fatal(err)
			}
			secure.Certificates = []tls.Certificate{pair}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}, Timeout: await.Limit}
		status, body, err := asksDecision(t, client, "https://"+address, c.token)
		if status != c.status || (err != nil) != (c.status == 0) {
			t.Errorf("certificate %q, token %q: %d %s (%v); want %d", c.cert, c.token, status, body, err, c.status)
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Limit}
	if status, body, err := asksDecision(t, client, "http://"+address, "0123456789abcdef"); err == nil && (status == 200 || status == 429) {
		t.Errorf("without TLS: %d %s", status, body)
	}
}

// Who is not trusted is told so.
func TestDecide_AnswersOnlyTrustedAddresses(t *testing.T) {
	t.Parallel()
	for trusted, want := range map[string]int{"[192.0.2.0/24]": 403, "[127.0.0.0/8]": 200} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "weir.yaml"), trustYAML("trusted: "+trusted))
		address := startWith(t, dir).WaitForLog("serving", nil).Text("decide")
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Limit}
		status, body, err := asksDecision(t, client, "http://"+address, "")
		if err != nil || status != want || want == 403 && !strings.Contains(body, "listen.decide.trusted") {
			t.Errorf("trusted: %s: %d %s (%v); want %d", trusted, status, body, err, want)
		}
	}
}
