package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/config/bundle"
)

const (
	// MaxLog is the maximum length of an uploaded access log in bytes.
	MaxLog = 32 << 20
	// maxFields is the maximum length of the form fields before the log.
	maxFields = bundle.MaxSize + 1<<20
	// drainWithin is how long the rest of an upload is read and discarded: browsers do not show a
	// response that arrives while they are still sending.
	drainWithin = 10 * time.Second
)

// A File is an uploaded file.
type File string

// A SimulateForm is the form (multipart/form-data) with which a log is uploaded. It is processed as
// a stream and not stored, so all other fields must come before the log.
type SimulateForm struct {
	Other  string   `json:"other,omitempty"` // all fields but the last two: see SimulateQuery
	Host   string   `json:"host,omitempty"`
	Field  []string `json:"field,omitempty"`
	Top    int      `json:"top,omitempty"`
	OwnLog bool     `json:"own_log,omitempty"` // replay the access log of this node instead of an uploaded one
	Log    File     `json:"log,omitempty"`     // may be compressed by gzip; the last part
}

// An Upload is a form whose last part is a log.
type Upload struct {
	Values   url.Values // the parts before the log
	log      io.Reader  // nil if there is none
	parts    *multipart.Reader
	complete io.Reader
}

// ReadUpload reads a form up to the log in it. Its error is a *Problem.
func ReadUpload(w http.ResponseWriter, r *http.Request) (*Upload, error) {
	whole := http.MaxBytesReader(w, r.Body, MaxLog+maxFields)
	r.Body = whole
	u := &Upload{Values: url.Values{}, complete: whole}
	var err error
	if u.parts, err = r.MultipartReader(); err != nil {
		return u, &Problem{Status: http.StatusUnsupportedMediaType, Detail: "the body is no form; send multipart/form-data, with the log as its last part"}
	}
	left := int64(maxFields)
	for {
		part, err := u.parts.NextPart()
		switch {
		case errors.Is(err, io.EOF):
			return u, nil
		case err != nil:
			return u, malformedForm(err)
		case part.FormName() == "log":
			return u, u.setLog(part)
		}
		text, err := io.ReadAll(io.LimitReader(part, left+1))
		if err != nil {
			return u, malformedForm(err)
		}
		if left -= int64(len(text)); left < 0 {
			return u, &Problem{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("what stands before the log is longer than %d MiB", maxFields>>20)}
		}
		u.Values.Add(part.FormName(), string(text))
	}
}

func malformedForm(err error) error {
	return &Problem{Status: http.StatusBadRequest, Detail: "the form is not understood: " + err.Error()}
}

// setLog sets the log, unless it is empty: browsers send an empty one if no file was selected.
func (u *Upload) setLog(part io.Reader) error {
	from := bufio.NewReader(part)
	if _, err := from.Peek(1); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return malformedForm(err)
	}
	u.log = &boundedLog{from: from, remaining: MaxLog}
	return nil
}

// Query returns the query of the form. Parts with names other than those of SimulateForm and more
// are refused.
func (u *Upload) Query(more ...string) (SimulateQuery, error) {
	known := append([]string{"other", "host", "field", "top", "own_log"}, more...)
	for name, values := range u.Values {
		if !slices.Contains(known, name) {
			return SimulateQuery{}, &Problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf("there is no part %q; write one of %s, and log as the last", name, strings.Join(known, ", "))}
		}
		if len(values) > 1 && name != "field" {
			return SimulateQuery{}, &Problem{Status: http.StatusBadRequest, Detail: name + " is there twice; write it once"}
		}
	}
	q := SimulateQuery{Log: u.log, Other: u.Values.Get("other"), Host: strings.TrimSpace(u.Values.Get("host")), Fields: u.Values["field"]}
	if text := u.Values.Get("top"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > MaxRows {
			return SimulateQuery{}, &Problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf("top=%s is no number of that; write 0 to %d", text, MaxRows)}
		}
		q.Top = n
	}
	own, err := strconv.ParseBool(u.Values.Get("own_log"))
	switch {
	case err != nil && u.Values.Get("own_log") != "":
		return q, &Problem{Status: http.StatusBadRequest, Detail: "own_log is true or false"}
	case own:
		q.Log = nil
	case u.log == nil:
		return q, &Problem{Status: http.StatusBadRequest, Detail: "there is no log; choose a file, which is sent as the last part, log"}
	}
	return q, nil
}

// checkEnd returns an error if there is a part after the log, because it could not be used.
func (u *Upload) checkEnd() error {
	if u.log == nil {
		return nil
	}
	part, err := u.parts.NextPart()
	if err != nil {
		return nil //nolint:nilerr // there is none
	}
	return &Problem{Status: http.StatusBadRequest, Detail: part.FormName() + " stands behind the log, which is read as it comes; send the log as the last part"}
}

// Close reads and discards the rest of the upload, for a short time.
func (u *Upload) Close() {
	until := time.Now().Add(drainWithin)
	for rest := make([]byte, 32<<10); time.Now().Before(until); {
		if _, err := u.complete.Read(rest); err != nil {
			return
		}
	}
}

// A boundedLog limits the length of an uploaded log.
type boundedLog struct {
	from      io.Reader
	remaining int64
}

// Read implements io.Reader. Its error is a *Problem if the log is too long.
func (b *boundedLog) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if b.remaining -= int64(n); b.remaining < 0 {
		return 0, &Problem{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("the log is longer than %d MiB; send it gzipped, or a part of it, or run weir simulate on the command line, which takes any length", MaxLog>>20)}
	}
	return n, err
}

// A Cluster changes the configuration of all nodes. Its errors may be Problems.
type Cluster interface {
	Push(ctx context.Context, p Push) (Pushed, error)
	Rollback(ctx context.Context, r Rollback) (Pushed, error)
	History(ctx context.Context) (History, error)
	// Diff returns the changes of a generation of the history.
	Diff(ctx context.Context, generation int64) (Diff, error)
}

// A Push is a configuration for all nodes.
type Push struct {
	Bundle bundle.Bundle `json:"bundle"`
	// Author is for the history. If it is empty, it is the name of the operator's token or, if that has none,
	// Sender, the user and host that send the push.
	Author string `json:"author"`
	Sender string `json:"sender,omitempty"`
	DryRun bool   `json:"dry_run"` // ask all nodes, but change nothing
}

// PushFile returns a push of one file with that text.
func PushFile(text, author string) Push {
	return Push{Bundle: bundle.Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": text}}, Author: author}
}

// A Rollback restores an earlier generation.
type Rollback struct {
	// Generation is 0 for the newest one that differs from what is served and from what was rolled back.
	Generation int64  `json:"generation"`
	Author     string `json:"author"` // as in a Push
	Sender     string `json:"sender,omitempty"`
	DryRun     bool   `json:"dry_run,omitempty"` // ask all nodes, but change nothing
}

// reloading returns the endpoint for a reload.
func (o Options) reloading() endpoint {
	return endpoint{
		method: http.MethodPost, path: "/reload", role: Write, response: reflect.TypeFor[Reloaded](),
		summary: "This node reads its configuration anew; where it is wrong, nothing has changed.",
		handle: func(w http.ResponseWriter, r *http.Request) {
			if readQuery(w, r, nil) {
				o.reload(w, r)
			}
		},
	}
}

func (o Options) push(ctx context.Context, p Push) (Pushed, error) { return o.Cluster.Push(ctx, p) }

func (o Options) rollback(ctx context.Context, r Rollback) (Pushed, error) {
	return o.Cluster.Rollback(ctx, r)
}

func (o Options) plan(ctx context.Context, p Push) (Plan, error) { return o.Plan(ctx, p.Bundle) }

// exclusive returns e limited to one request at a time. Others are refused before their bodies are
// read: a plan costs as much as a reload.
func (e endpoint) exclusive(why string) endpoint {
	busy, next := make(chan struct{}, 1), e.handle
	e.handle = func(w http.ResponseWriter, r *http.Request) {
		select {
		case busy <- struct{}{}:
			defer func() { <-busy }()
			next(w, r)
		default:
			problem(w, http.StatusTooManyRequests, why)
		}
	}
	return e
}
