package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/weirtest"
)

// TestMain runs the example in place of the tests where these ask for it.
func TestMain(m *testing.M) {
	if os.Getenv("CHALLENGE_SECRET") != "" {
		main()
	}
	os.Exit(m.Run())
}

const secret = "shared by the example and by Weir"

const configuration = `
keys: {number: {from: "json:/phone", normalize: {as: e164, default_region: CN}}, country: {of: number, part: country}}
routes:
  - name: sms-send
    match: {methods: [POST], path: /v1/sms/send}
    upstream: echo
    limits:
      - {name: country, key: country, rate: 1/1h, step_up: {challenge: sms, key: number, rate: 3/1h, jwt: {secret: "` + secret + `"}}}
`

// A site is two nodes of Weir with one store, and the example.
type site struct {
	*testing.T
	nodes   []*proxy.Proxy
	example string // its URL
	sent    int
}

// startSite starts a site. Its CAPTCHA takes each of these solutions once, as real ones do.
func startSite(t *testing.T, solutions ...string) *site {
	t.Helper()
	var mu sync.Mutex
	left := map[string]bool{}
	for _, s := range solutions {
		left[s] = true
	}
	captcha := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		response := r.PostFormValue("response")
		_ = json.NewEncoder(w).Encode(map[string]any{"success": left[response] && r.PostFormValue("secret") == "of the CAPTCHA", "hostname": "example.com"})
		delete(left, response)
	}))
	t.Cleanup(captcha.Close)

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LISTEN=127.0.0.1:0", "CHALLENGE_SECRET="+secret, "CAPTCHA_SECRET=of the CAPTCHA", "CAPTCHA_URL="+captcha.URL)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	_, addr, found := strings.Cut(strings.TrimSpace(line), "listening on ")
	if err != nil || !found {
		t.Fatalf("the example says %q, %v", line, err)
	}
	s := &site{T: t, example: "http://" + addr}
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	store := limiter.NewMemory(limiter.MemoryOptions{})
	for range 2 {
		c, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		p, err := proxy.New(t.Context(), proxy.Options{Config: c, Store: store, Registry: prometheus.NewRegistry(), Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		s.nodes = append(s.nodes, p)
	}
	return s
}

// solve gets a token.
func (s *site) solve(want int, response, number string) (token string) {
	s.Helper()
	answer, err := http.PostForm(s.example, url.Values{"response": {response}, "number": {number}})
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != want {
		s.Fatalf("the example answers %d, %v: %s; want %d", answer.StatusCode, err, text, want)
	}
	return string(text)
}

// send sends a code through the next node, and returns the detail of the problem.
func (s *site) send(want int, number, token string) string {
	s.Helper()
	r := httptest.NewRequest("POST", "/v1/sms/send", strings.NewReader(`{"phone":"`+number+`"}`))
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("X-Challenge-Token", token)
	}
	s.sent++
	rec := weirtest.Exchange(s.nodes[s.sent%2], r)
	var problem struct{ Challenge, Detail string }
	if err := json.Unmarshal(rec.Body.Bytes(), &problem); err != nil {
		s.Errorf("%s: %v", rec.Body, err)
	}
	if rec.Code != want || (want == 403) != (problem.Challenge == "sms") {
		s.Errorf("%s with the token %q = %d %s; want %d", number, token, rec.Code, rec.Body, want)
	}
	return problem.Detail
}

// TestChallenge goes the way of a user, and then those of somebody who has no token or another one.
func TestChallenge(t *testing.T) {
	s := startSite(t, "solved", "solved again", "solved for another")
	s.send(200, "+86 138 0013 8000", "")
	s.send(403, "+86 138 0013 8001", "")
	s.solve(403, "guessed", "+86 138 0013 8001")
	token := s.solve(200, "solved", "138 0013 8001") // in another spelling
	s.solve(403, "solved", "+86 138 0013 8001")
	s.send(403, "+86 138 0013 8002", token) // of another number
	s.send(200, "+86 138 0013 8001", token)
	s.send(403, "+86 138 0013 8001", token) // on one node
	s.send(403, "+86 138 0013 8001", token) // and on the other one
	other := s.solve(200, "solved for another", "+86 138 0013 8002")
	parts, own := strings.Split(other, "."), strings.Split(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(own[1])
	if err != nil {
		t.Fatal(err)
	}
	renewed := strings.Replace(string(payload), `"jti":"`, `"jti":"x`, 1)
	expired, err := json.Marshal(map[string]any{"challenge": "sms", "sub": "+8613800138001", "jti": "y", "iat": time.Now().Add(-time.Minute).Unix(), "exp": time.Now().Add(-31 * time.Second).Unix()})
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"claims of one token, signature of another": parts[0] + "." + own[1] + "." + parts[2],
		"another jti":    own[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(renewed)) + "." + own[2],
		"alg none":       base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(renewed)) + ".",
		"another secret": sign([]byte(renewed), "not shared by the example and Weir"),
		"expired":        sign(expired, secret),
	} {
		if detail := s.send(403, "+86 138 0013 8001", token); !strings.Contains(detail, "Refused: the token") {
			t.Errorf("%s: the detail is %q", name, detail)
		}
	}
	s.send(200, "+86 138 0013 8002", other)
	s.send(200, "+86 138 0013 8001", s.solve(200, "solved again", "+8613800138001"))
	s.send(429, "+86 138 0013 8001", sign([]byte(renewed), secret)) // the second rate is used up
}
