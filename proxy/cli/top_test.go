package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"

	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
)

// A topServer answers as the API of a running weir does with its data, and notes how keys were changed.
type topServer struct {
	mu      sync.Mutex // guards what follows
	data    topData
	refuses string // why it refuses all; empty if it does not
	asked   map[string]int
	changes []string // paths with bodies
}

func (s *topServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, d := strings.TrimPrefix(r.URL.Path, "/api/v1/"), s.data
	s.asked[path+"?"+r.URL.RawQuery]++
	if s.refuses != "" {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]any{"status": http.StatusForbidden, "detail": s.refuses})
		return
	}
	if r.Method == http.MethodPost && path != "keys/inspect" {
		var body struct {
			Pairs             []view.KeyPair
			For, Plan, Reason string
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.changes = append(s.changes, fmt.Sprintf("%s %s=%s %s %s %q", path, body.Pairs[0].Key, body.Pairs[0].Value, body.For, body.Plan, body.Reason))
	}
	stands := []view.LimitStanding{{Route: "sms", Limit: "phone", Masked: "bad", ID: "id:bad", Windows: []view.WindowStanding{{Rate: "5/1h", Used: 5}}}}
	answer, known := map[string]any{
		"nodes": d.Nodes, "leader": d.Leader, "limits": d.Limits, "routes": d.Routes, "top": d.Top, "upstreams": d.Upstreams, "statistics": d.Statistic,
		"keys/inspect": view.KeyStanding{Limits: stands},
	}[path]
	if !known {
		change := view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}
		answer = view.KeyResult{KeyChange: change, Changed: stands, Everywhere: true}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// A testTerminal is simulated, and keeps what it has shown last.
type testTerminal struct {
	tcell.SimulationScreen
	mu              sync.Mutex // guards what follows
	shown, selected string     // all of it, and the row in reverse
}

// Show implements tcell.Screen.
func (t *testTerminal) Show() {
	t.SimulationScreen.Show()
	cells, width, _ := t.GetContents()
	var shown, selected strings.Builder
	for i, c := range cells {
		shown.Write(c.Bytes)
		if i%width == width-1 {
			shown.WriteByte('\n')
		}
		if _, _, attributes := c.Style.Decompose(); attributes&tcell.AttrReverse != 0 {
			selected.Write(c.Bytes)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shown, t.selected = shown.String(), selected.String()
}

// text returns all that is shown, and of it the row that is selected.
func (t *testTerminal) text() (shown, selected string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shown, t.selected
}

// waitForSelected waits until the row with text is selected.
func (t *testTerminal) waitForSelected(test *testing.T, text string) {
	test.Helper()
	await.Until(test, text+" is selected", func() bool {
		_, selected := t.text()
		return strings.Contains(selected, text)
	})
}

// startTop shows what a server says on a screen that is simulated, until the test ends or the operator ends it.
func startTop(t *testing.T) (s *topServer, screen *testTerminal, ended <-chan error) {
	t.Helper()
	s = &topServer{data: sample(), asked: map[string]int{}}
	server := httptest.NewServer(s)
	screen = &testTerminal{SimulationScreen: tcell.NewSimulationScreen("UTF-8")}
	app := tview.NewApplication().SetScreen(screen)
	screen.SetSize(100, 24)
	ctx, cancel := context.WithCancel(t.Context())
	done, over := make(chan error, 1), make(chan struct{})
	c := topCommand{Route: "sms", Minutes: 5, Rows: 20, Every: 10 * time.Millisecond}
	c.Admin = server.URL
	go func() {
		done <- showTop(ctx, app, c)
		close(over)
	}()
	t.Cleanup(func() {
		cancel()
		<-over
		server.Close()
	})
	screen.waitFor(t, "phone=bad")
	return s, screen, done
}

// waitFor waits until all texts are on the screen.
func (t *testTerminal) waitFor(test *testing.T, texts ...string) {
	test.Helper()
	for _, want := range texts {
		await.Until(test, want+" on the screen", func() bool {
			shown, _ := t.text()
			return strings.Contains(shown, want)
		})
	}
}

// press presses keys: letters as they are, and others by their names in <>.
func (t *testTerminal) press(keys string) {
	named := map[string]tcell.Key{
		"tab": tcell.KeyTab, "backtab": tcell.KeyBacktab, "enter": tcell.KeyEnter, "esc": tcell.KeyEsc, "up": tcell.KeyUp, "down": tcell.KeyDown,
		"end": tcell.KeyEnd, "home": tcell.KeyHome, "pgdn": tcell.KeyPgDn, "pgup": tcell.KeyPgUp, "ctrl-c": tcell.KeyCtrlC, "clear": tcell.KeyCtrlU,
	}
	for keys != "" {
		if name, rest, found := strings.Cut(strings.TrimPrefix(keys, "<"), ">"); found && keys[0] == '<' {
			t.InjectKey(named[name], 0, tcell.ModNone)
			keys = rest
			continue
		}
		r := []rune(keys)[0]
		t.InjectKey(tcell.KeyRune, r, tcell.ModNone)
		keys = keys[len(string(r)):]
	}
}

// Keys lead to pages and rows; a row stays selected when others move, and when there is nothing for a while.
func TestTop_PagesAndRows(t *testing.T) {
	s, screen, _ := startTop(t)
	for _, step := range []struct{ keys, page string }{
		{"<tab>", "[2 Limits]"}, {"<backtab><backtab>", "[5 Upstreams]"}, {"4", "[4 Nodes]"}, {"3", "[3 Routes]"}, {"5<tab>", "[1 Keys]"},
	} {
		screen.press(step.keys)
		screen.waitFor(t, step.page)
	}
	for _, step := range []struct{ keys, key string }{
		{"", "bad"}, {"<down>", "busy"}, {"<down><down>", "busy"}, {"k", "bad"}, {"j", "busy"}, {"<home>", "bad"}, {"<end>", "busy"}, {"<pgup>", "bad"},
		{"<pgdn>", "busy"}, {"s", "busy"}, {"3<down>1", "busy"},
	} {
		screen.press(step.keys)
		screen.waitForSelected(t, "phone="+step.key)
	}
	screen.waitFor(t, "most requests first, last 5 minutes")
	s.set(func() { s.data.Top.Limits = nil })
	screen.waitFor(t, "no requests with a limit")
	screen.press("<down><enter>")
	screen.waitFor(t, "no key is selected")
	s.set(func() { s.data = sample() })
	screen.waitForSelected(t, "phone=busy")
	screen.press("?")
	screen.waitFor(t, "another page", "audit trail")
	screen.press(" ")
	screen.waitFor(t, ", stopped")
	s.set(func() { s.data.Leader.Node = "n2" })
	screen.press("2")
	screen.waitFor(t, "[2 Limits]", "n1 leads")
	screen.press("p1")
	screen.waitFor(t, "[1 Keys]", "n2 leads")
	s.set(func() { s.refuses = "the token of [support] is gone\x1b[2J" })
	screen.waitFor(t, "the token of [support] is gone?[2J", "phone=bad") // what was told last stays
}

// set changes what s answers.
func (s *topServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Nothing is changed without a reason and the press of a button, nor with a plan or a duration that does not exist.
func TestTop_AsksBeforeItChanges(t *testing.T) {
	s, screen, _ := startTop(t)
	for _, step := range []struct{ keys, text string }{
		{"b", "Ban phone=bad under all limits that count by phone"},
		{"<esc>", "nothing was changed"},
		{"b<enter>spam<enter><esc>", "nothing was changed"},
		{"r<enter><enter>", "write a few words for the audit trail"},
		{"<esc>b<clear>soon<enter>spam<enter><enter>", "a duration has a unit"},
		{"<esc>b<clear><enter>spam<enter><enter>", "a duration has a unit"},
		{"<esc>agold<enter><enter>paid<enter><enter>", "no such plan"},
		{"<esc>a", "free, pro; without one, an assignment ends"},
		{"<esc>4b", "no key is selected"},
		{"1<esc>", "[1 Keys]"},
	} {
		screen.press(step.keys)
		screen.waitFor(t, step.text)
	}
	s.set(func() {
		if len(s.changes) > 0 {
			t.Errorf("changed: %q", s.changes)
		}
	})
}

// What was done is told, with how the key stands since, and all is fetched anew.
func TestTop_ChangesKeys(t *testing.T) {
	s, screen, _ := startTop(t)
	screen.press("<enter>")
	screen.waitFor(t, "bad  hash", "sms.phone  5/1h")
	for keys, want := range map[string]string{
		"b<enter>she called, 打电话<enter><enter>":    `keys/ban phone=id:bad 1h  "she called, 打电话"`,
		"b<clear>2h<enter>spam<enter><enter>":      `keys/ban phone=id:bad 2h  "spam"`,
		"r she called <enter><enter>":              `keys/reset phone=id:bad   "she called"`,
		"u[red]<enter><enter>":                     `keys/unban phone=id:bad   "[red]"`,
		"apro<enter><enter>paid<enter><enter>":     `keys/plan phone=id:bad 30d pro "paid"`,
		"a<enter><enter>unpaid<enter><enter>":      `keys/unplan phone=id:bad   "unpaid"`,
		"2b<enter>of the limit<enter><enter><esc>": `keys/ban phone=id:bad 1h  "of the limit"`,
	} {
		s.set(func() { s.changes = nil })
		screen.press("1<esc>" + keys)
		var got []string
		await.Until(t, keys+" changes something", func() bool {
			s.set(func() { got = s.changes })
			return len(got) > 0
		})
		if len(got) != 1 || got[0] != want {
			t.Errorf("%s does %q, want %q", keys, got, want)
		}
	}
	screen.press("1<esc>b<enter>spam<enter><enter>")
	screen.waitFor(t, "banned for 1h by sms.phone, on all nodes")
	s.set(func() { s.refuses = "the token of [support] may only read" })
	screen.press("r no<enter><enter>")
	screen.waitFor(t, "not done: ", "the token of [support] may only read")
	s.set(func() {
		if n := s.asked["top?minutes=5&n=20&route=sms"]; n < 2 {
			t.Errorf("keys were asked for %d times, want again and again; asked was %v", n, s.asked)
		}
	})
}

// Whatever the terminal's size, it is drawn, with many rows and wide letters, too.
func TestTop_FitsAnySize(t *testing.T) {
	s, screen, _ := startTop(t)
	s.set(func() {
		l := &s.data.Top.Limits[0]
		for i := range 40 {
			l.Refused.Keys = append(l.Refused.Keys, view.TopKey{Masked: fmt.Sprintf("名前=%040d", i), ID: fmt.Sprint("id:", i), Count: 1})
		}
	})
	screen.press("<end>?b")
	for _, size := range [][2]int{{1, 1}, {3, 60}, {200, 2}, {40, 8}, {70, 12}, {130, 50}} {
		screen.SetSize(size[0], size[1])
		if err := screen.PostEvent(tcell.NewEventResize(size[0], size[1])); err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "Reason", false: ""}[size[0] >= 40 && size[1] >= 8]
		await.Until(t, fmt.Sprint("a screen of ", size), func() bool {
			text, _ := screen.text()
			return strings.Count(text, "\n") == size[1] && strings.Contains(text, want)
		})
	}
}

// It ends by keys, also while it asks, and when its terminal goes away.
func TestTop_Ends(t *testing.T) {
	for name, end := range map[string]func(*testTerminal){
		"q":                      func(s *testTerminal) { s.press("q") },
		"Ctrl-C":                 func(s *testTerminal) { s.press("<ctrl-c>") },
		"Ctrl-C while it asks":   func(s *testTerminal) { s.press("b<ctrl-c>") },
		"an error of the screen": func(s *testTerminal) { _ = s.PostEvent(tcell.NewEventError(context.Canceled)) },
	} {
		t.Run(name, func(t *testing.T) {
			_, screen, ended := startTop(t)
			end(screen)
			if err := <-ended; err != nil {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}
