package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
)

// A simulateView is the form in which a log is sent, and what came of replaying it.
type simulateView struct {
	MaxLog    int64
	AccessLog string // of this node, which it can replay; empty for none
	Own       bool   // that is to be replayed
	Other     string // YAML
	Host      string
	Fields    string // WHAT=NAME, one a line
	Fault     fault
	// Said is nil before a log was replayed; Sides are its one or two configurations.
	Said  *admin.Simulation
	Sides []simulatedSide
	Tops  []simulatedTop
}

// A simulatedSide is what one configuration would have done.
type simulatedSide struct {
	Name string
	proxy.ReplayTally
}

// Refuses are the refusals of a series over the time of the whole log: it ends with the
// last of them.
func (s simulatedSide) Refuses(series proxy.ReplaySeries) []int64 {
	steps := len(series.Refused)
	if s.Step > 0 {
		steps = max(steps, int(s.To.Sub(s.Start)/s.Step)+1)
	}
	return append(series.Refused[:len(series.Refused):len(series.Refused)], make([]int64, steps-len(series.Refused))...)
}

// A simulatedTop is the keys that a limit refuses most, under each configuration.
type simulatedTop struct {
	Route, Limit string
	Keys         []simulatedKeys
}

// A simulatedKeys is the same under one of them.
type simulatedKeys struct {
	Name string
	proxy.LimitTally
}

func (d *dashboard) showSimulateForm(r *http.Request) view {
	v := d.simulateView(nil)
	if r.URL.Query().Get("other") != "" {
		c, err := d.Config(r.Context())
		v.Fault = faultOf("the configuration cannot be read", err)
		v.Other = editable(c.Effective)
	}
	return v.view(0)
}

func (d *dashboard) simulateView(form url.Values) simulateView {
	return simulateView{
		MaxLog: admin.MaxLog, AccessLog: d.AccessLog, Own: form.Get("own_log") == "true",
		Other: form.Get("other"), Host: form.Get("host"), Fields: form.Get("fields"),
	}
}

func (v simulateView) view(status int) view {
	return view{name: "simulate", title: "Simulate", status: status, data: v}
}

// editable is an effective configuration without what belongs to the machine: whatever
// replaces it need not say that.
func editable(effective string) string {
	var b strings.Builder
	keep := true
	for line := range strings.Lines(effective) {
		if section, _, found := strings.Cut(line, ":"); found && line[0] != ' ' && line[0] != '#' {
			keep = !slices.Contains([]string{"listen", "admin", "store", "redis", "reload", "access_log", "traces"}, section)
		}
		if keep {
			b.WriteString(line)
		}
	}
	return b.String()
}

// simulate replays the log that is sent. The form is read as it comes: what is before the
// log, with the token, first. The token has another name than in other forms: htmx takes
// an input called form for the form that it is in, and sends it last.
func (d *dashboard) simulate(w http.ResponseWriter, r *http.Request) {
	u, err := admin.ReadUpload(w, r)
	defer u.Close()
	v := d.simulateView(u.Values)
	switch {
	case err != nil:
	case !d.made(u.Values.Get("session"), sessionOf(r).id):
		err = &admin.Problem{Status: http.StatusForbidden, Detail: foreignForm}
	default:
		u.Values["field"] = slices.Collect(fieldsOf(v.Fields))
		var said admin.Simulation
		if said, err = d.Replay(r.Context(), u, "session", "fields"); err == nil {
			v.tell(said)
		}
	}
	shown := v.refuse(err)
	if r.Header.Get("HX-Request") != "" {
		shown.status = http.StatusOK // for browsers complain of any other that a script is answered with
	}
	d.show(w, r, shown)
}

// fieldsOf are the lines that say something.
func fieldsOf(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && !yield(line) {
				return
			}
		}
	}
}

// refuse is v with why it has nothing to tell, if it has not.
func (v simulateView) refuse(err error) view {
	if err == nil {
		return v.view(0)
	}
	status := http.StatusUnprocessableEntity
	var known *admin.Problem
	if errors.As(err, &known) {
		status = cmp.Or(known.Status, status)
	}
	v.Fault = faultOf("this log cannot be replayed", err)
	return v.view(status)
}

// tell takes up what came of a log.
func (v *simulateView) tell(said admin.Simulation) {
	v.Said = &said
	v.Sides = []simulatedSide{{"Current configuration", said.Result}}
	if said.Against != nil {
		v.Sides = append(v.Sides, simulatedSide{"The other configuration", *said.Against})
	}
	at := map[string]int{}
	for _, side := range v.Sides {
		for _, rt := range side.Routes {
			for _, l := range rt.Limits {
				if len(l.Top) == 0 {
					continue
				}
				name := rt.Name + "." + l.Name
				i, known := at[name]
				if !known {
					i = len(v.Tops)
					at[name] = i
					v.Tops = append(v.Tops, simulatedTop{Route: rt.Name, Limit: l.Name})
				}
				v.Tops[i].Keys = append(v.Tops[i].Keys, simulatedKeys{side.Name, l})
			}
		}
	}
}
