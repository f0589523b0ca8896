package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy/view"
)

// A changedKey is an admin side with one key, whose changes are in an audit trail.
type changedKey struct {
	trail  []view.AuditEntry // newest first
	done   []string
	fail   error // of the trail
	wrong  error // of changes
	during func()
}

func (k *changedKey) options() Options {
	return Options{
		Gatherer: prometheus.NewRegistry(),
		Standing: func(context.Context, view.KeyQuery) (view.KeyStanding, error) {
			return view.KeyStanding{Limits: []view.LimitStanding{
				{Route: "sms", Limit: "phone", Hash: "aa", Mode: "enforce"}, {Route: "sms", Limit: "country", Hash: "cc", Derived: true, Mode: "enforce"},
			}}, nil
		},
		Change: func(_ context.Context, c view.KeyChange) (view.KeyResult, error) {
			if k.during != nil {
				k.during()
			}
			if k.wrong != nil {
				return view.KeyResult{}, k.wrong
			}
			k.done = append(k.done, string(c.Action))
			return view.KeyResult{KeyChange: c}, nil
		},
		Audit: func(_ context.Context, q view.AuditQuery) (view.Audit, error) {
			return view.Audit{Entries: k.trail[:min(len(k.trail), q.N)]}, k.fail
		},
		Once: once{},
	}
}

// add adds an entry to the trail, as another operator would.
func (k *changedKey) add(e view.AuditEntry) {
	e.ID, e.At = strconv.Itoa(len(k.trail)+1), time.Now().Add(-2*time.Minute-30*time.Second)
	k.trail = append([]view.AuditEntry{e}, k.trail...)
}

// once is an admin.Once without expiry.
type once map[string][]byte

func (o once) Claim(_ context.Context, name string, value []byte) ([]byte, error) {
	if found, ok := o[name]; ok {
		return found, nil
	}
	o[name] = value
	return nil, nil
}

func (o once) Put(_ context.Context, name string, value []byte) error {
	if o[name] = value; value == nil {
		delete(o, name)
	}
	return nil
}

// inspect returns the state of the key over the API.
func inspect(t *testing.T, o Options) (s KeyState) {
	t.Helper()
	w := adminPost(o, "POST", "/api/v1/keys/inspect", `{}`)
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != 200 {
		t.Fatalf("inspect = %d %s", w.Code, w.Body)
	}
	return s
}

// A change that another operator made since one has looked is said, and nothing is changed.
func TestKeys_AChangeBySomebodyElseIsAConflict(t *testing.T) {
	for _, c := range []struct {
		name    string
		since   view.AuditEntry
		says    string
		applies bool
	}{
		{"ban", view.AuditEntry{Who: "anna", Action: "ban", For: "1h", Reason: "a flood", Hash: "aa", Limits: []string{"sms.phone"}}, "anna banned it for 1h, 2m31s ago (a flood), after you looked", false},
		{"grant", view.AuditEntry{Who: "anna", Action: "grant", Permits: 3, Hash: "aa", Limits: []string{"sms.phone"}}, "anna granted it permits: 3, 2m31s ago", false},
		{"failed", view.AuditEntry{Who: "anna", Action: "ban", Hash: "aa", Limits: []string{"sms.phone"}, Error: "redis is away"}, "", true},
		{"other key", view.AuditEntry{Who: "anna", Action: "ban", Hash: "bb", Limits: []string{"sms.phone"}}, "", true},
		{"other limit", view.AuditEntry{Who: "anna", Action: "ban", Hash: "aa", Limits: []string{"verify.guesses"}}, "", true},
		{"part of the key", view.AuditEntry{Who: "anna", Action: "ban", Hash: "cc", Limits: []string{"sms.country"}}, "", true},
		{"push", view.AuditEntry{Who: "anna", Action: "push"}, "", true},
	} {
		for _, before := range []int{0, 1} { // entries before the look
			k := &changedKey{}
			for range before {
				k.add(view.AuditEntry{Who: "ben", Action: "reset", Hash: "aa", Limits: []string{"sms.phone"}})
			}
			o := k.options()
			looked := inspect(t, o)
			if (looked.LastChange != nil) != (before > 0) || looked.LastChange != nil && looked.LastChange.Who != "ben" {
				t.Errorf("%s: the last change is %+v", c.name, looked.LastChange)
			}
			k.add(c.since)
			w := adminPost(o, "POST", "/api/v1/keys/reset", `{"version":"`+looked.Version+`"}`)
			if c.applies != (w.Code == 200) || c.applies != (len(k.done) == 1) || !c.applies && (w.Code != 409 || !strings.Contains(w.Body.String(), c.says)) {
				t.Errorf("%s: reset = %d %s, and did %v; want %q", c.name, w.Code, w.Body, k.done, c.says)
			}
			if w := adminPost(o, "POST", "/api/v1/keys/reset", `{"version":"`+inspect(t, o).Version+`"}`); w.Code != 200 {
				t.Errorf("%s: after another look, reset = %d %s", c.name, w.Code, w.Body)
			}
			if w := adminPost(o, "POST", "/api/v1/keys/unban", `{}`); w.Code != 200 {
				t.Errorf("%s: without a version, unban = %d %s", c.name, w.Code, w.Body)
			}
		}
	}
}

// What was changed before the newest entries of the trail is not known: a key that one has looked at before them is not
// changed, whatever they are about.
func TestKeys_ALookBeforeTheNewestEntriesIsAConflict(t *testing.T) {
	for others, code := range map[int]int{changesRead - 1: 200, changesRead: 409} {
		k := &changedKey{}
		k.add(view.AuditEntry{Who: "ben", Action: "push"})
		o := k.options()
		version := inspect(t, o).Version
		for range others {
			k.add(view.AuditEntry{Who: "anna", Action: "ban", Hash: "bb", Limits: []string{"sms.phone"}})
		}
		w := adminPost(o, "POST", "/api/v1/keys/reset", `{"version":"`+version+`"}`)
		if w.Code != code || code == 409 && !strings.Contains(w.Body.String(), "look at the key again") {
			t.Errorf("after %d entries: %d %s; want %d", others, w.Code, w.Body, code)
		}
	}
}

// During an outage a key can be looked up and changed; that others may have changed it is said.
func TestKeys_AreChangedWhileTheTrailCannotBeRead(t *testing.T) {
	k := &changedKey{}
	o := k.options()
	version := inspect(t, o).Version
	k.fail = errors.New("redis is away")
	if s := inspect(t, o); s.Version != "" || len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "changes by others are not known") {
		t.Errorf("got %+v", s)
	}
	if w := adminPost(o, "POST", "/api/v1/keys/reset", `{"version":"`+version+`"}`); w.Code != 200 {
		t.Errorf("reset = %d %s", w.Code, w.Body)
	}
}

// send sends a change with an Idempotency-Key as an operator.
func (k *changedKey) send(o Options, path, body string, keys ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/api/v1/keys/"+path, strings.NewReader(body))
	r.Host = "localhost"
	for _, key := range keys {
		r.Header.Add("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	New(o).ServeHTTP(w, r)
	return w
}

func TestIdempotencyKey_AChangeIsMadeOnce(t *testing.T) {
	k := &changedKey{}
	o := k.options()
	first := k.send(o, "grant", `{"permits":5}`, "k-1")
	again := k.send(o, "grant", `{"permits":5}`, "k-1")
	if first.Code != 200 || again.Code != 200 || again.Body.String() != first.Body.String() || again.Header().Get("Content-Type") != "application/json" || len(k.done) != 1 {
		t.Errorf("got %d %s and %d %s, and did %v; want one grant, twice the same response", first.Code, first.Body, again.Code, again.Body, k.done)
	}
	for _, c := range []struct {
		path, body string
		keys       []string
		code       int
		done       int
	}{
		{"grant", `{"permits":6}`, []string{"k-1"}, 422, 1},
		{"grant", `{"permits":5}`, []string{""}, 400, 1},
		{"grant", `{"permits":5}`, []string{"a", "b"}, 400, 1},
		{"grant", `{"permits":5}`, []string{strings.Repeat("a", 256)}, 400, 1},
		{"ban", `{"for":"1h"}`, []string{"k-1"}, 200, 2}, // another path
		{"grant", `{"permits":5}`, []string{"k-2"}, 200, 3},
		{"grant", `{"permits":5}`, nil, 200, 4},
		{"grant", `{"permits":5}`, nil, 200, 5},
	} {
		if w := k.send(o, c.path, c.body, c.keys...); w.Code != c.code || len(k.done) != c.done {
			t.Errorf("%s %s with %.9q = %d %s, and did %v; want %d and %d changes", c.path, c.body, c.keys, w.Code, w.Body, k.done, c.code, c.done)
		}
	}
}

// What has failed may be sent again; what is in progress may not.
func TestIdempotencyKey_AFailureIsNotRemembered(t *testing.T) {
	k := &changedKey{wrong: errors.New("redis is away")}
	o := k.options()
	var meanwhile int
	k.during = func() {
		k.during = nil
		meanwhile = k.send(o, "reset", `{}`, "k").Code
	}
	if w := k.send(o, "reset", `{}`, "k"); w.Code != 503 || meanwhile != 409 {
		t.Errorf("reset = %d %s, and meanwhile %d; want 503 and 409", w.Code, w.Body, meanwhile)
	}
	k.wrong = nil
	if w := k.send(o, "reset", `{}`, "k"); w.Code != 200 || len(k.done) != 1 {
		t.Errorf("again = %d %s, and did %v; want it done", w.Code, w.Body, k.done)
	}
}
