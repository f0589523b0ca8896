package dashboard_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
)

// Pages listen to what happens with the session that they were shown in.
func TestEvents_AreForThoseWhoAreLoggedIn(t *testing.T) {
	o := options()
	o.Token = token
	o.Events = admin.NewEvents(func() map[proxy.Series]int64 { return nil })
	b := open(t, o)
	b.get("/dashboard/events").shows(t, http.StatusOK, "Admin token")
	b.login(token).shows(t, http.StatusOK, `data-events="/dashboard/events"`)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.at+"/dashboard/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := b.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got := answer.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("got %s", got)
	}
	o.Events.Publish(admin.Event{Type: admin.EventReload, Generation: 8})
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() && lines.Text() != "" {
		if data, found := strings.CutPrefix(lines.Text(), "data: "); found && strings.Contains(data, `"generation":8`) {
			return
		}
	}
	t.Error("got no event")
}
