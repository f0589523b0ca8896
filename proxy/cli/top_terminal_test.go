package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/test/await"
)

// A topServer answers as the API of a running weir does with the sample, and notes which
// key was banned.
type topServer struct {
	mu     sync.Mutex // guards what follows
	asked  map[string]int
	banned admin.KeyBan
}

func (s *topServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/")
	s.asked[path+"?"+r.URL.RawQuery]++
	d := sample()
	answer := map[string]any{
		"nodes": d.Nodes, "leader": d.Leader, "limits": d.Limits, "routes": d.Routes, "top": d.Top, "upstreams": d.Upstreams, "statistics": d.Statistic,
		"keys/ban": proxy.KeyResult{Changed: []proxy.LimitStanding{{Route: "sms", Limit: "phone", Masked: "bad"}}, Everywhere: true},
	}[path]
	if path == "keys/ban" {
		if err := json.NewDecoder(r.Body).Decode(&s.banned); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// A testTerminal is simulated, and keeps what it has shown last.
type testTerminal struct {
	tcell.SimulationScreen
	mu    sync.Mutex // guards what follows
	shown string
}

// Show implements tcell.Screen.
func (t *testTerminal) Show() {
	t.SimulationScreen.Show()
	cells, width, _ := t.GetContents()
	var b strings.Builder
	for i, c := range cells {
		b.Write(c.Bytes)
		if i%width == width-1 {
			b.WriteByte('\n')
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shown = b.String()
}

func (t *testTerminal) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shown
}

// startTop shows what a server says on a screen that is simulated, until the test ends or
// the operator does so.
func startTop(t *testing.T) (s *topServer, screen *testTerminal, ended <-chan error) {
	t.Helper()
	s = &topServer{asked: map[string]int{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	screen = &testTerminal{SimulationScreen: tcell.NewSimulationScreen("UTF-8")}
	if err := screen.Init(); err != nil {
		t.Fatal(err)
	}
	screen.SetSize(100, 24)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	source := topSource{client: admin.Client{Address: server.URL}, route: "sms", minutes: 5, keys: 20}
	go func() { done <- runTop(ctx, screen, source, 10*time.Millisecond) }()
	t.Cleanup(func() { cancel(); screen.Fini() })
	return s, screen, done
}

// waitForText waits for a text on the screen.
func waitForText(t *testing.T, screen *testTerminal, want string) {
	t.Helper()
	await.Until(t, want+" on the screen", func() bool { return strings.Contains(screen.text(), want) })
}

func TestTopTerminal_LooksAgainAndActs(t *testing.T) {
	s, screen, ended := startTop(t)
	waitForText(t, screen, "[1 Keys]")
	waitForText(t, screen, "phone=bad   25       25-30     hbad")
	screen.InjectKey(tcell.KeyTab, 0, tcell.ModNone)
	waitForText(t, screen, "[2 Limits]")
	screen.SetSize(60, 20)
	if err := screen.PostEvent(tcell.NewEventResize(60, 20)); err != nil {
		t.Fatal(err)
	}
	waitForText(t, screen, "25       100       25 %   1/60s 5/1h")
	screen.InjectKey(tcell.KeyBacktab, 0, tcell.ModNone)
	for _, r := range "b" {
		screen.InjectKey(tcell.KeyRune, r, tcell.ModNone)
	}
	waitForText(t, screen, "Ban phone=bad for how long? 1h_")
	screen.InjectKey(tcell.KeyEnter, 0, tcell.ModNone)
	for _, r := range "spam" {
		screen.InjectKey(tcell.KeyRune, r, tcell.ModNone)
	}
	waitForText(t, screen, "why? spam_")
	screen.InjectKey(tcell.KeyEnter, 0, tcell.ModNone)
	screen.InjectKey(tcell.KeyRune, 'y', tcell.ModNone)
	waitForText(t, screen, "banned for 1h: phone=bad under 1 limit, on all")
	screen.InjectKey(tcell.KeyCtrlC, 0, tcell.ModNone)
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.banned; time.Duration(b.For) != time.Hour || b.Reason != "spam" || len(b.Pairs) != 1 || b.Pairs[0] != (proxy.KeyPair{Key: "phone", Value: "id:bad"}) {
		t.Errorf("the server was told %+v", b)
	}
	if n := s.asked["top?minutes=5&n=20&route=sms"]; n < 2 {
		t.Errorf("keys were asked for %d times, want again and again; asked was %v", n, s.asked)
	}
}

// A terminal that goes away ends it.
func TestTopTerminal_EndsWithItsTerminal(t *testing.T) {
	_, screen, ended := startTop(t)
	waitForText(t, screen, "[1 Keys]")
	if err := screen.PostEvent(tcell.NewEventError(context.Canceled)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
}
