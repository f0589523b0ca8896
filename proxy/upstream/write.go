package upstream

import "net/http"

// WriteHeader passes on 1xx answers to clients that can read them, and the
// final one with nothing added to it but what the caller put there. A 100 is
// left to net/http: it writes one itself when the body begins to be read, which
// the target's 100 makes happen at that moment, and the client wants it once.
func (j *forwarding) WriteHeader(status int) {
	h := j.ResponseWriter.Header()
	if status < 200 {
		if !j.in.ProtoAtLeast(1, 1) || status == http.StatusContinue {
			return
		}
		strip(h)
		j.ResponseWriter.WriteHeader(status)
		return
	}
	for name, values := range j.ownFields {
		if h[name] == nil {
			h[name] = values // a 1xx has swept it away
		}
	}
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // or net/http would guess one
	}
	if j.in.ProtoMajor == 1 && j.body.unread() {
		j.answerEarly(h)
	}
	j.result.Wrote = true
	j.ResponseWriter.WriteHeader(status)
}

// answerEarly lets the answer begin while the request is still coming in, each
// at its own pace. By default net/http would first swallow the rest of the
// body, which the target is still to get. Since nobody then checks that rest,
// the connection carries no further request.
func (j *forwarding) answerEarly(h http.Header) {
	if http.NewResponseController(j.ResponseWriter).EnableFullDuplex() == nil {
		h.Set("Connection", "close")
	}
}

func (j *forwarding) Write(p []byte) (int, error) {
	n, err := j.ResponseWriter.Write(p)
	if err != nil && j.written == nil {
		j.written = err
	}
	return n, err
}

// Unwrap lets net/http find what the writer below can do.
func (j *forwarding) Unwrap() http.ResponseWriter { return j.ResponseWriter }
