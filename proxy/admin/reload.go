package admin

import (
	"errors"
	"maps"
	"net/http"

	"github.com/weir-proxy/weir/proxy/config"
)

// reload reads the configuration anew: 200 with what is served now, or 422 with
// every problem of the files; then nothing has changed.
func (o Options) reload(w http.ResponseWriter, r *http.Request) {
	report, err := o.Reload(r.Context())
	if err == nil {
		reply(w, http.StatusOK, "application/json", report)
		return
	}
	var problems config.Problems
	if !errors.As(err, &problems) {
		problem(w, http.StatusConflict, err.Error(), nil)
		return
	}
	refused(w, problems)
}

// refused sends every problem of a configuration.
func refused(w http.ResponseWriter, problems config.Problems) {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	problem(w, http.StatusUnprocessableEntity, lines[0], map[string]any{"problems": lines})
}

// problem sends a problem document (RFC 9457). The admin side answers operators,
// so it may tell them all it knows.
func problem(w http.ResponseWriter, status int, detail string, more map[string]any) {
	doc := map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail}
	maps.Copy(doc, more)
	reply(w, status, "application/problem+json", doc)
}
