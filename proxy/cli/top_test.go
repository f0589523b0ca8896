package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"

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

// sample is what top might be told.
func sample() topData {
	at := time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC)
	key := func(id string, count, wrong int64) view.TopKey {
		return view.TopKey{Masked: "phone=" + id, Hash: "h" + id, ID: "id:" + id, Count: count, Error: wrong}
	}
	return topData{
		At: at, Minutes: 15,
		Nodes: admin.Nodes{Self: "n1", Nodes: []view.Member{
			{ID: "n1", Address: "10.0.0.1:9901", Generation: 4, Hash: "0123456789", Started: at.Add(-time.Hour)},
			{ID: "n2", Address: "10.0.0.2:9901", Generation: 3, Hash: "abc", Drift: true, Source: "file"},
		}, Lost: []view.Member{{ID: "n3", Seen: at.Add(-time.Minute)}}, Configurations: []admin.NodeGroup{
			{Hash: "0123456789", Generation: 4, Source: "redis", Nodes: []string{"n1"}}, {Hash: "abc", Generation: 3, Source: "file", Nodes: []string{"n2"}},
		}},
		Leader: view.Leadership{Node: "n1"},
		Limits: view.Limits{Limits: []view.Limit{
			{Route: "sms", Name: "quiet", Key: "ip", Rates: []string{"9/1h"}, Mode: "shadow"},
			{Route: "sms", Name: "phone", Key: "phone", Rates: []string{"1/60s", "5/1h"}, Mode: "enforce", Plans: []string{"free", "pro"}},
		}},
		Routes: view.Routes{Routes: []view.Route{{Name: "sms", Path: "/sms", Methods: []string{"POST"}, Upstream: "api", Limits: []string{"phone"}}, {Name: "ok", Path: "/ok", Respond: 204}}},
		Top: view.Top{Minutes: 15, Nodes: []view.NodeAnswer{{Node: "n1", Said: "ok"}, {Node: "n2"}}, Limits: []view.TopLimit{{
			Route: "sms", Limit: "phone", Key: "phone", Mode: "enforce",
			Requests: view.TopList{Total: 100, Keys: []view.TopKey{key("busy", 60, 0), key("bad", 30, 5)}},
			Refused:  view.TopList{Total: 25, Keys: []view.TopKey{key("bad", 25, 0)}},
		}}},
		Upstreams: view.Upstreams{Upstreams: []view.Upstream{{UpstreamState: view.UpstreamState{Name: "api", Waiting: 2}, Targets: []view.Target{{
			Target: "http://a", State: "ejected", InFlight: 3, Requests: 80, Errors: 8, Nodes: []view.TargetNode{{TargetState: view.TargetState{State: "healthy"}}, {TargetState: view.TargetState{State: "ejected"}}},
		}}}}},
		Statistic: view.Statistics{Minutes: []view.Minute{
			{At: at.Add(-2 * time.Minute), Routes: []view.RouteMinute{{Route: "sms", Requests: 7, Refused: 2, Limits: []view.LimitMinute{{Limit: "phone", Refused: 2}}}}},
			{At: at.Add(-time.Minute), Routes: []view.RouteMinute{{Route: "sms", Requests: 5, Refused: 1, Unavailable: 1, Limits: []view.LimitMinute{{Limit: "phone", Refused: 1, Unavailable: 1}}}}},
		}, Last: view.Minute{At: at.Add(-time.Minute), Routes: []view.RouteMinute{{Route: "sms", Requests: 6, Refused: 1}, {Route: "none", Requests: 1}}}},
	}
}

// rowsOf are the cells of a page.
func rowsOf(d topData, page topPage, order topOrder) string {
	var all []string
	for _, row := range d.table(page, order).rows {
		all = append(all, strings.Join(row.cells, "|"))
	}
	return strings.Join(all, "\n")
}

func TestTop_PagesTellWhatOperatorsAsk(t *testing.T) {
	d := sample()
	for page, want := range map[topPage]string{
		pageKeys:      "sms.phone|phone=bad|25|25-30|hbad\nsms.phone|phone=busy|0|60|hbusy",
		pageLimits:    "sms.phone|25|100|25.0 %|1/60s 5/1h|phone=bad|enforce|phone\nsms.quiet|0|0|-|9/1h|-|shadow|ip",
		pageRoutes:    "sms|6|12|3|POST /sms|api|1\nok|0|0|0|/ok|204|0",
		pageNodes:     "n1|ok|leads|4|01234567|10.0.0.1:9901||1h\nn2|no answer||3|abc|10.0.0.2:9901||-\nn3|lost 1m ago||0||||-",
		pageUpstreams: "api|http://a|ejected|1 of 2|8|80|3|2",
	} {
		if got := rowsOf(d, page, byRefused); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", page.title(), got, want)
		}
	}
	if want := "2 nodes; n1 leads; 1 of 2 serve generation 4, not n2 (generation 3 from file); 1 lost, the last n3 1m ago; 1 did not answer; last minute: 7 requests, 1 refused"; d.summary() != want {
		t.Errorf("summary is %q, want %q", d.summary(), want)
	}
	if got := rowsOf(d, pageKeys, byRequests); !strings.HasPrefix(got, "sms.phone|phone=busy|") {
		t.Errorf("ordered by requests, keys are %q", got)
	}
	for page := range pageCount {
		if empty := (topData{}).table(page, byRefused).empty; empty == "" {
			t.Errorf("%s without anything says nothing", page.title())
		}
	}
}

// Of a route or a limit that is asked for, no others are listed.
func TestTop_ListsWhatIsAskedFor(t *testing.T) {
	for page, want := range map[topPage]string{pageLimits: "sms.phone|25|100|25.0 %|1/60s 5/1h|phone=bad|enforce|phone", pageRoutes: "sms|6|12|3|POST /sms|api|1"} {
		d := sample()
		d.query = view.TopQuery{Route: "sms", Limit: "phone"}
		if got := rowsOf(d, page, byRefused); got != want {
			t.Errorf("%s: %q; want %q", page.title(), got, want)
		}
	}
	d := sample()
	d.query.Limit = "phone"
	if got, want := rowsOf(d, pageRoutes, byRefused), "sms|6|12|3|POST /sms|api|1"; got != want {
		t.Errorf("routes of a limit: %q; want %q", got, want)
	}
	d.query.Limit, d.Top.Limits = "off", nil
	if got := d.table(pageLimits, byRefused); len(got.rows) > 0 || got.empty != "no limit of that name is in force" {
		t.Errorf("of a limit that does not count it shows %+v", got)
	}
}

// A key that is in one of both lists only has in the other at most what those have that are not listed.
func TestTop_TellsWhatACountMayBe(t *testing.T) {
	d := sample()
	l := &d.Top.Limits[0]
	l.Requests.Floor, l.Refused.Floor = 40, 3
	l.Requests.Keys = l.Requests.Keys[:1]
	if got, want := rowsOf(d, pageKeys, byRefused), "sms.phone|phone=bad|25|0-40|hbad\nsms.phone|phone=busy|0-3|60|hbusy"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
	l.Requests.Keys, l.Refused.Keys = nil, nil
	if got := d.table(pageKeys, byRefused); len(got.rows) > 0 || !strings.Contains(got.empty, "no key stands out") {
		t.Errorf("where nobody stands out it shows %+v", got)
	}
}

// While Redis is away, the rest is shown: what the node itself has seen.
func TestTop_WithoutRedis(t *testing.T) {
	d := sample()
	d.Away = "redis is unreachable: no answer in time"
	d.Nodes, d.Leader, d.Statistic = admin.Nodes{}, view.Leadership{}, view.Statistics{}
	d.Top.Nodes = []view.NodeAnswer{{Node: "n1", Said: "ok"}, {Node: "all other nodes", Said: "not asked: redis"}}
	for page, want := range map[topPage]string{
		pageKeys:   "sms.phone|phone=bad|25|25-30|hbad\nsms.phone|phone=busy|0|60|hbusy",
		pageRoutes: "sms|-|-|-|POST /sms|api|-\nok|-|-|-|/ok|204|-",
		pageNodes:  "n1|ok||-|-|-|-|-\nall other nodes|not asked: redis||-|-|-|-|-",
	} {
		if got := rowsOf(d, page, byRefused); got != want {
			t.Errorf("%s: %q; want %q", page.title(), got, want)
		}
	}
	if want := "redis is unreachable: no answer in time; only what this node has seen"; d.summary() != want {
		t.Errorf("it says %q, want %q", d.summary(), want)
	}
}

// What clients send cannot act on the terminal.
func TestTop_ShowsNoControlCharacters(t *testing.T) {
	d := sample()
	d.Top.Limits[0].Refused.Keys[0].Masked = "\x1b[31mred\u202e\n"
	if got := rowsOf(d, pageKeys, byRefused); !strings.Contains(got, "?[31mred??") {
		t.Errorf("shows %q", got)
	}
}

func TestTopOnce_PrintsAllPages(t *testing.T) {
	var out bytes.Buffer
	if err := printTop(&out, sample(), 20); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"keys of the last 15 minutes, as of 2026-01-31T09:30:00Z\n", "\nKEYS\n  LIMIT      KEY         REFUSED  REQUESTS  HASH\n  sms.phone  phone=bad   25       25-30     hbad\n",
		"\nLIMITS\n", "\nROUTES\n", "\nNODES\n", "\nUPSTREAMS\n  UPSTREAM  TARGET    STATE    HEALTHY ON",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := printTop(&out, topData{}, 20); err != nil || !strings.Contains(out.String(), "no node is known") {
		t.Errorf("without anything: %v\n%s", err, out.String())
	}
}

// Of each table there are no more rows than were asked for, and what is left out is said.
func TestTopOnce_PrintsSoManyRows(t *testing.T) {
	d := sample()
	for i := range 500 {
		d.Limits.Limits = append(d.Limits.Limits, view.Limit{Route: fmt.Sprint("r", i), Name: "l"})
	}
	var out bytes.Buffer
	if err := printTop(&out, d, 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"25-30     hbad\n  and 1 other row; -n prints more\n", "\n  and 501 other rows; -n prints more\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "\n"); n > 25 {
		t.Errorf("%d lines", n)
	}
}
