package test

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
)

// twoNodes starts two that share a Redis and refuse phone p after one request.
func twoNodes(t *testing.T, more string) (one, other *weir) {
	t.Helper()
	server := redistest.Start(t)
	config := redisYAML(server.Addr) + smsYAML("1/1h", more)
	one, other = start(t, config), start(t, config)
	waitForNodes(t, server.Addr, 2)
	one.send("p")
	for _, w := range []*weir{one, other} { // each remembers the refusal
		if got := w.statuses("p", 2); !slices.Equal(got, []int{429, 429}) {
			t.Fatalf("after the only permit a node answers %v", got)
		}
	}
	return one, other
}

// keys runs weir keys against w, which must do what it is told.
func (w *weir) keys(args ...string) string {
	w.t.Helper()
	code, stdout, stderr := w.admin(w.t.TempDir(), append([]string{"keys"}, args...)...)
	if code != 0 {
		w.t.Fatalf("weir keys %v exits %d: %s%s", args, code, stdout, stderr)
	}
	return stdout
}

// What is reset through one node passes on both at once, although both remember that it
// was refused.
func TestKeys_ResetOnOneNodePassesOnAll(t *testing.T) {
	t.Parallel()
	one, other := twoNodes(t, "")
	said := one.keys("reset", "header:X-Phone=p", "--reason", "the phone was lent")
	if !strings.Contains(said, ", on all nodes") {
		t.Errorf("reset says %q", said)
	}
	await.Within(t, 5*time.Second, "the key passes on the other node", func() bool { return other.send("p") == 200 })
	if got := one.send("p"); got != 429 {
		t.Errorf("after the permit that came back was used, the first node answers %d, want 429", got)
	}
	one.keys("reset", "header:X-Phone=p")
	if got := one.send("p"); got != 200 {
		t.Errorf("reset key is answered %d on the node that was told, want 200", got)
	}
	line := one.WaitForLog("operator action", func(l logtest.Line) bool { return l.Text("reason") == "the phone was lent" })
	if line.Text("who") != "local" || line.Text("action") != "reset" || line.Text("key_hash") == "" || line.Text("operator_address") == "" {
		t.Errorf("the log says %v", line)
	}
	status, trail := other.get(other.Admin + "/api/v1/audit")
	if status != http.StatusOK || strings.Count(trail, `"action":"reset"`) != 2 || !strings.Contains(trail, "the phone was lent") {
		t.Errorf("the audit trail on the other node is %d %s", status, trail)
	}
}

func TestKeys_BanAndUnbanHoldOnAll(t *testing.T) {
	t.Parallel()
	one, other := twoNodes(t, "")
	one.keys("reset", "header:X-Phone=p")
	if said := one.keys("ban", "header:X-Phone=p", "--for", "1h"); !strings.Contains(said, "banned for 1h by ") || !strings.Contains(said, "1h0m0s") {
		t.Errorf("ban says %q", said)
	}
	for _, w := range []*weir{one, other} {
		if got := w.send("p"); got != 429 {
			t.Errorf("a banned key is answered %d, want 429", got)
		}
	}
	other.keys("unban", "header:X-Phone=p")
	await.Within(t, 5*time.Second, "the key passes on the first node", func() bool { return one.send("p") == 200 })
}

func TestKeys_GrantGivesPermitsOnTop(t *testing.T) {
	t.Parallel()
	one, other := twoNodes(t, "")
	other.keys("grant", "header:X-Phone=p", "--permits", "1")
	await.Within(t, 5*time.Second, "the key passes on the first node", func() bool { return one.send("p") == 200 })
	if got := other.send("p"); got != 429 {
		t.Errorf("after what was granted is used, the answer is %d, want 429", got)
	}
}

// changeKey sends a change of phone p to the API of w, with more fields and header lines.
func (w *weir) changeKey(action, fields string, lines ...string) (int, string) {
	w.t.Helper()
	body := `{"pairs": [{"key": "header:X-Phone", "value": "p"}]` + fields + "}"
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.Admin+"/api/v1/keys/"+action, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// A change that is sent again, to another node, is made once; one over a change by somebody else is not made.
func TestKeys_SentAgainAndAtOnce(t *testing.T) {
	t.Parallel()
	one, other := twoNodes(t, "")
	_, looked := one.changeKey("inspect", "")
	var state struct {
		Version string
		Verdict struct {
			Refused bool
			Text    string
		}
	}
	if err := json.Unmarshal([]byte(looked), &state); err != nil || !state.Verdict.Refused || !strings.Contains(state.Verdict.Text, "refused now by sms-send.phone 1/1h, passes ") {
		t.Errorf("inspect says %s", looked)
	}
	for _, w := range []*weir{one, other} {
		if code, said := w.changeKey("grant", `, "permits": 1`, "Idempotency-Key: k"); code != http.StatusOK || !strings.Contains(said, `"permits":1`) {
			t.Errorf("grant = %d %s", code, said)
		}
	}
	if _, trail := one.get(one.Admin + "/api/v1/audit"); strings.Count(trail, `"action":"grant"`) != 1 {
		t.Errorf("the audit trail is %s; want one grant", trail)
	}
	if code, said := one.changeKey("grant", `, "permits": 2`, "Idempotency-Key: k"); code != http.StatusUnprocessableEntity {
		t.Errorf("another grant with that key = %d %s", code, said)
	}
	if code, said := other.changeKey("reset", `, "version": "`+state.Version+`"`); code != http.StatusConflict || !strings.Contains(said, "local granted it permits: 1, ") {
		t.Errorf("reset = %d %s", code, said)
	}
	_, looked = other.changeKey("inspect", "")
	if err := json.Unmarshal([]byte(looked), &state); err != nil || !strings.Contains(looked, `"last_change":{`) {
		t.Errorf("inspect says %s", looked)
	}
	if code, said := one.changeKey("reset", `, "version": "`+state.Version+`"`); code != http.StatusOK {
		t.Errorf("reset = %d %s", code, said)
	}
}

func TestKeys_InMemory(t *testing.T) {
	t.Parallel()
	w := start(t, smsYAML(`"2/1h", "9/1d"`, "")+"defaults: {expose: true}\n")
	w.statuses("p", 3)
	said := w.keys("get", "header:X-Phone=p")
	for _, want := range []string{"refused now by sms-send.phone 2/1h, passes ", "LIMIT", "sms-send.phone  2/1h  2     0", "sms-send.phone  9/1d  2     7", "hash "} {
		if !strings.Contains(said, want) {
			t.Errorf("get says %q, want %q in it", said, want)
		}
	}
	id := "id:" + strings.Fields(said[strings.Index(said, "id:")+3:])[0]
	w.keys("reset", "header:X-Phone="+id)
	if got := w.send("p"); got != 200 {
		t.Errorf("a key that was reset by its id is answered %d, want 200", got)
	}
	if said := w.keys("get", "header:X-Phone=p", "--json"); !strings.Contains(said, `"used": 1`) {
		t.Errorf("get --json says %s", said)
	}
}

// What is wrong is said in the words that a request would be told.
func TestKeys_WrongValues(t *testing.T) {
	t.Parallel()
	w := start(t, `keys: {phone: {from: "header:X-Phone", normalize: e164}}
routes: [{name: sms, match: {path: /sms}, respond: {body: ok}, limits: [{name: phone, key: phone, rate: 1/1h}]}]
`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"get", "phone=12"}, "phone: key not valid"},
		{[]string{"get", "fone=+8613800138000"}, "write one of phone"},
		{[]string{"get", "phone"}, "write KEY=VALUE"},
		{[]string{"get", "phone=+8613800138000", "--route", "none"}, "write one of sms"},
		{[]string{"ban", "phone=+8613800138000", "--for", "1"}, "write for example 1h"},
		{[]string{"ban", "phone=+8613800138000", "--for", "400d"}, "from 1ms to 366d"},
		{[]string{"grant", "phone=+8613800138000", "--permits", "0"}, "write a whole number from 1"},
		{[]string{"ban", "phone=+8613800138000"}, "--for"},
	} {
		code, stdout, stderr := w.admin(t.TempDir(), append([]string{"keys"}, c.args...)...)
		if code == 0 || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("weir keys %v exits %d: %s%s; want %q", c.args, code, stdout, stderr, c.want)
		}
	}
}

// A token of the role read looks, and changes nothing.
func TestKeys_RolesOfTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "weir.yaml"), smsYAML("1/1h", "")+`listen: {http: "127.0.0.1:0"}
admin:
  http: "127.0.0.1:0"
  tokens: [{name: ops, token: sixteen-letters-and-more, role: write}, {name: support, token: another-sixteen-letters}]
`)
	w := startWith(t, dir)
	w.statuses("p", 2)
	for _, c := range []struct {
		token, action string
		code          int
		want          string
	}{
		{"another-sixteen-letters", "get", 0, "1/1h"},
		{"another-sixteen-letters", "reset", 1, "support may only read"},
		{"sixteen-letters-and-mor", "get", 1, "send the admin token"},
		{"sixteen-letters-and-more", "reset", 0, ", on all nodes"},
	} {
		code, stdout, stderr := w.admin(dir, "keys", c.action, "header:X-Phone=p", "--token", c.token)
		if code != c.code || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("weir keys %s with %s exits %d: %s%s; want %d and %q", c.action, c.token, code, stdout, stderr, c.code, c.want)
		}
	}
	w.WaitForLog("operator action", func(l logtest.Line) bool { return l.Text("who") == "ops" && l.Text("action") == "reset" })
}

// What a running weir would do, and what it has done.
func TestExplain_AsksARunningWeir(t *testing.T) {
	t.Parallel()
	w := start(t, smsYAML("1/1h", ""))
	w.send("p")
	status, header, _ := exchange(t, http.MethodPost, w.URL+"/v1/sms/send", http.Header{"X-Phone": {"p"}})
	if status != 429 {
		t.Fatalf("the second request is answered %d", status)
	}
	code, stdout, stderr := w.admin(t.TempDir(), "explain", "POST", "/v1/sms/send", "-H", "X-Phone: p")
	if code != 0 || !strings.Contains(stdout, "429 refused by a limit") {
		t.Errorf("explain exits %d: %s%s; want to be told of the refusal", code, stdout, stderr)
	}
	if code, stdout, stderr := w.admin(t.TempDir(), "explain", header.Get("X-Request-Id")); code != 0 || !strings.Contains(stdout, "429, refused") || !strings.Contains(stdout, "phone-1h") {
		t.Errorf("explain of an id exits %d: %s%s", code, stdout, stderr)
	}
	for _, c := range []struct{ args, want string }{
		{"NOT-AN-ID", "no node has a record"},
		{"POST", "write the URL after it"},
		{"post /v1/sms/send", "write POST"},
	} {
		code, stdout, stderr := w.admin(t.TempDir(), append([]string{"explain"}, strings.Fields(c.args)...)...)
		if code != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("explain %s exits %d: %s%s; want %q", c.args, code, stdout, stderr, c.want)
		}
	}
}

// What operators do to the configuration is in the audit trail, also what was in vain.
func TestAudit_TellsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := startFollowers(t, server.Addr, 1)[0]
	for n := 1; n <= 2; n++ {
		if code, stdout, stderr := w.push(revisionYAML(n), "ann"); code != 0 {
			t.Fatalf("push exits %d: %s%s", code, stdout, stderr)
		}
	}
	w.push("routes: []\n", "bob")
	w.push(revisionYAML(3), "ann", "--dry-run")
	if code, stdout, stderr := w.admin(w.Dir, "rollback", "--author", "cy"); code != 0 {
		t.Fatalf("rollback exits %d: %s%s", code, stdout, stderr)
	}
	w.reload()
	_, text := w.get(w.Admin + "/api/v1/audit")
	var trail struct {
		Entries []struct{ Who, Action, Detail, Error string }
	}
	if err := json.Unmarshal([]byte(text), &trail); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range trail.Entries {
		did := e.Action
		if e.Error != "" {
			did += " in vain"
		} else if _, by, found := strings.Cut(e.Detail, " by "); found {
			did += " by " + by
		}
		got = append(got, e.Who+": "+did)
	}
	want := []string{"local: reload", "local: rollback by cy", "local: push in vain", "local: push by ann", "local: push by ann"}
	if !slices.Equal(got, want) {
		t.Errorf("the audit trail is %q, want %q: %s", got, want, text)
	}
}
