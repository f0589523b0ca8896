package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	// minBackoff is how long a collector that is away is left alone, twice as long after
	// each attempt, and maxBackoff the longest that it can ask for.
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
	// maxResponse is how much of an answer is read.
	maxResponse = 64 << 10
)

// retryableError says that the collector may take the same spans later.
type retryableError struct {
	retryAfter time.Duration // as it asks for; 0 if it does not
	err        error
}

func (e *retryableError) Error() string { return e.err.Error() }

func (e *retryableError) Unwrap() error { return e.err }

// sendWithRetry sends spans until the collector has taken or refused them, or it was
// asked often enough, or ctx ends.
func (e *Exporter) sendWithRetry(ctx context.Context, spans []*Span) {
	// A TracesData has the same encoding as the request of the service: its one field is
	// that of the request.
	body, err := proto.Marshal(e.data(spans))
	pause := minBackoff
	for attempt := 1; err == nil; attempt++ {
		var refused int
		refused, err = e.send(ctx, body)
		if err == nil {
			e.count("sent", len(spans)-refused)
			e.count("failed", refused)
			return
		}
		var later *retryableError
		if !errors.As(err, &later) || attempt == maxAttempts {
			break
		}
		wait := max(min(later.retryAfter, maxBackoff), pause/2+rand.N(pause/2)) // not all Weirs at one moment
		pause = min(2*pause, maxBackoff)
		err = sleep(ctx, wait)
	}
	e.count("failed", len(spans))
}

// sleep waits, or ends with ctx.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// send sends a message, and returns how many of its spans the collector did not want.
func (e *Exporter) send(ctx context.Context, body []byte) (refused int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.options.Endpoint, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	for name, value := range e.options.Headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("User-Agent", "weir/"+e.options.Version)
	res, err := e.options.Client.Do(r)
	if err != nil {
		return 0, &retryableError{0, err}
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	switch {
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode >= 502 && res.StatusCode <= 504:
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		return 0, &retryableError{time.Duration(max(seconds, 0)) * time.Second, fmt.Errorf("collector answers %s", res.Status)}
	case res.StatusCode < 200 || res.StatusCode > 299:
		return 0, fmt.Errorf("collector answers %s", res.Status)
	case err != nil:
		return 0, nil // it has taken them, whatever it wanted to add
	}
	return rejected(answer), nil
}

// rejected is how many spans an ExportTraceServiceResponse says were refused: field 1 of
// its field 1.
func rejected(answer []byte) int {
	partial, _ := protowire.ConsumeBytes(field(answer, protowire.BytesType))
	n, length := protowire.ConsumeVarint(field(partial, protowire.VarintType))
	if length < 0 || n > batchSize {
		return 0
	}
	return int(n)
}

// field is the value of field 1, if it has this type, and what follows; nil if there is
// none.
func field(message []byte, is protowire.Type) []byte {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		if number == 1 && kind == is {
			return message
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return nil
		}
		message = message[n:]
	}
	return nil
}
