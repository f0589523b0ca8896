package key

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/MicahParks/jwkset"
	"golang.org/x/net/http/httpguts"
)

const (
	maxJWKS      = 1 << 20          // bytes
	fetchTimeout = 10 * time.Second // for one response
	refreshPause = 10 * time.Second // between two requests, even if tokens name unknown keys
	refreshEvery = 5 * time.Minute
)

// refreshLoop reloads the JSON Web Key Set periodically, and soon after a token named an unknown
// key. Requests do not wait for it: issuers publish a key before they sign with it.
func (t *Tokens) refreshLoop(ctx context.Context, report func(error)) {
	again := time.NewTimer(refreshEvery)
	defer again.Stop()
	wanted := t.wanted
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		case <-wanted:
			if rest := refreshPause - time.Since(last); rest > 0 {
				wanted = nil // one refresh serves all requests until then
				again.Reset(rest)
				continue
			}
		}
		if err := t.refresh(ctx); err != nil && ctx.Err() == nil {
			report(err)
		}
		last, wanted = time.Now(), t.wanted
		again.Reset(refreshEvery)
	}
}

// requestRefresh schedules a refresh. It does not wait.
func (t *Tokens) requestRefresh() {
	select {
	case t.wanted <- struct{}{}:
	default:
	}
}

// refresh reloads the key set. If it cannot be read or is empty, the current keys stay.
func (t *Tokens) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	text, err := t.load(ctx)
	if err != nil {
		return fmt.Errorf("read keys of tokens: %w", err)
	}
	keys, err := jwksKeys(text)
	if err != nil {
		return fmt.Errorf("read keys of tokens at %s: %w", t.Location(), err)
	}
	t.keys.Store(new(slices.Concat(t.fixed, keys)))
	return nil
}

// load returns the text of the key set.
func (t *Tokens) load(ctx context.Context) ([]byte, error) {
	if t.Fetches() == "" {
		return os.ReadFile(t.config.JWKS)
	}
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, t.config.JWKS, nil) // NewTokens has parsed the URL
	// A connection that is kept may be dead by the next request.
	request.Close = true
	client := http.Client{Transport: t.config.Transport, CheckRedirect: func(to *http.Request, via []*http.Request) error {
		if !trusted(to.URL) || len(via) > 3 {
			return errors.New("redirected to an untrusted location")
		}
		return nil
	}}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", t.Location(), answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxJWKS+1))
	if len(text) > maxJWKS {
		return nil, fmt.Errorf("%s answered with more than %d bytes", t.Location(), maxJWKS)
	}
	return text, err
}

// jwksKeys parses a key set. It ignores keys of unknown types, secret keys and encryption
// keys, and what it does not understand; a set without other keys is an error.
func jwksKeys(text []byte) ([]verifier, error) {
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("no set of keys: %w", err)
	}
	var keys []verifier
	for _, text := range set.Keys {
		var one jwkset.JWKMarshal
		if json.Unmarshal(text, &one) != nil || one.KTY == jwkset.KtyOct || one.USE != "" && one.USE != jwkset.UseSig {
			continue
		}
		// The library refuses a key for what it does not need: a chain, a digest of it (Auth0 writes one of its own), operations.
		bare := jwkset.JWKMarshal{KTY: one.KTY, CRV: one.CRV, X: one.X, Y: one.Y, N: one.N, E: one.E}
		parsed, _ := jwkset.NewJWKFromMarshal(bare, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
		v, err := publicKey(parsed.Key()) // nil if it is not valid
		v.id = one.KID
		v.methods = slices.DeleteFunc(v.methods, func(m string) bool { return one.ALG != "" && m != one.ALG.String() })
		if err == nil && len(v.methods) > 0 {
			keys = append(keys, v)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("no public key in it that can verify")
	}
	return keys, nil
}

// bearer returns the token of the Authorization field, "" if the field has another scheme.
// Credentials that servers parse differently are ErrAmbiguous, so that a request for which
// the upstream finds a token is never treated as one without: several spaces after the
// scheme, a tab, a token without a scheme, a scheme within other credentials (Laravel takes
// the last "Bearer ").
func bearer(fields []string) (string, error) {
	field, err := single(fields)
	if err != nil || field == "" {
		return "", err
	}
	scheme, text, ok := strings.Cut(field, " ")
	if !ok || !httpguts.ValidHeaderFieldName(scheme) || !isPlainText(text) || text == "" {
		return "", fmt.Errorf("%w: Authorization is not a scheme, one space and credentials", ErrAmbiguous)
	}
	switch {
	case strings.EqualFold(scheme, "Bearer") && !isToken68(text):
		return "", fmt.Errorf("%w: Authorization has more than a token after Bearer", ErrAmbiguous)
	case strings.EqualFold(scheme, "Bearer"):
		return text, nil
	case strings.Contains(strings.ToLower(text), "bearer "):
		return "", fmt.Errorf("%w: Authorization has a Bearer within another scheme", ErrAmbiguous)
	}
	return "", nil
}

// isToken68 reports whether s has the syntax of a bearer token (token68, RFC 6750 section
// 2.1).
func isToken68(s string) bool {
	s = strings.TrimRight(s, "=")
	return s != "" && isWord(s, "-._~+/")
}
