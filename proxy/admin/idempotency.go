package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/weir-proxy/weir/proxy"
)

const (
	// idempotencyHeader names a change (draft-ietf-httpapi-idempotency-key-header): requests with the same
	// name are one change, which is made once, however often and to whichever node it is sent.
	idempotencyHeader = "Idempotency-Key"
	// maxIdempotencyKey is its maximum length in bytes.
	maxIdempotencyKey = 255
	// putTimeout bounds the time to store a response.
	putTimeout = 5 * time.Second
)

// Once stores what was made of the changes with an Idempotency-Key, for all nodes.
type Once interface {
	// Claim stores value under a name for the duration of a request, and returns nil. If there is a value
	// already, it returns that.
	Claim(ctx context.Context, name string, value []byte) ([]byte, error)
	// Put replaces a claim by a value that is kept for a day; no value removes it.
	Put(ctx context.Context, name string, value []byte) error
}

// A storedResponse is the response to a change, or a claim without status while it is made.
type storedResponse struct {
	Request string `json:"request"` // hash of the request
	Status  int    `json:"status,omitempty"`
	Body    []byte `json:"body,omitempty"`
}

// idempotent returns e with support for the header Idempotency-Key. Only success is remembered: after an
// error nothing has changed, and the same request may be sent again.
func (e endpoint) idempotent(once Once) endpoint {
	e.parameters = append(e.parameters, parameter{name: idempotencyHeader, in: "header", to: new(string), summary: "Makes a change once: a request with the same key within a day has the response of the first. The key is at most 255 characters, of this operator and path; with another body it is refused with 422, and while the first is in progress with 409."})
	next := e.handle
	e.handle = func(w http.ResponseWriter, r *http.Request) {
		sent := r.Header.Values(idempotencyHeader)
		isOther := func(r rune) bool { return r < ' ' || r >= 0x7f }
		switch {
		case len(sent) == 0:
			next(w, r)
			return
		case len(sent) > 1 || sent[0] == "" || len(sent[0]) > maxIdempotencyKey || strings.ContainsFunc(sent[0], isOther):
			problem(w, http.StatusBadRequest, fmt.Sprintf("%s is one value of 1 to %d ASCII characters", idempotencyHeader, maxIdempotencyKey))
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("longer than %d bytes", maxBody))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		change := namedChange{once: once, name: hashOf(OperatorOf(r.Context()).Name, r.URL.Path, sent[0]), request: hashOf(string(body))}
		change.serve(w, r, next)
	}
	return e
}

// hashOf returns a hash of texts, which are joined with their lengths.
func hashOf(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// A namedChange is a change with an Idempotency-Key.
type namedChange struct {
	once          Once
	name, request string
}

// serve makes the change, or responds as it was responded to before.
func (c namedChange) serve(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	found, err := c.once.Claim(r.Context(), c.name, c.encode(storedResponse{}))
	if err != nil {
		problem(w, http.StatusServiceUnavailable, idempotencyHeader+" cannot be looked up: "+proxy.ErrorText(err)+"; without it, the change is made in any case")
		return
	}
	if found != nil {
		c.repeat(w, found)
		return
	}
	var body bytes.Buffer
	response := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
	response.Tee(&body) // whole, also if the client has gone meanwhile
	response.Discard()
	var keep []byte
	defer func() { // also after a panic: nobody waits for the claim to expire
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), putTimeout)
		defer cancel()
		_ = c.once.Put(ctx, c.name, keep) // the change is made: its response is sent in any case
	}()
	next(response, r)
	if response.Status() == http.StatusOK {
		keep = c.encode(storedResponse{Status: http.StatusOK, Body: body.Bytes()})
	}
	w.WriteHeader(max(response.Status(), http.StatusOK)) // 0 if nothing was written
	w.Write(body.Bytes())
}

// repeat responds with what is stored.
func (c namedChange) repeat(w http.ResponseWriter, found []byte) {
	var s storedResponse
	switch err := json.Unmarshal(found, &s); {
	case err != nil:
		problem(w, http.StatusServiceUnavailable, idempotencyHeader+": what is stored is not understood")
	case s.Request != c.request:
		problem(w, http.StatusUnprocessableEntity, idempotencyHeader+" was used for another request; choose a new one")
	case s.Status == 0:
		problem(w, http.StatusConflict, "the request with this "+idempotencyHeader+" is in progress; send it again in a moment")
	default:
		reply(w, s.Status, "application/json", json.RawMessage(s.Body))
	}
}

func (c namedChange) encode(s storedResponse) []byte {
	s.Request = c.request
	text, _ := json.Marshal(s) // it has only strings and numbers
	return text
}
