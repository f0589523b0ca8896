package key

import "errors"

// Errors about keys. Errors that wrap these name the key, never its value. OnMissing and
// OnInvalid of a Spec apply only to ErrMissing and ErrInvalid.
var (
	// ErrSpec reports an invalid description of a key in the configuration.
	ErrSpec = errors.New("not a key")
	// ErrMissing reports a request without a required key.
	ErrMissing = errors.New("key missing")
	// ErrInvalid reports an invalid key: not a phone number, not JSON, a token without a
	// valid signature.
	ErrInvalid = errors.New("key not valid")
	// ErrAmbiguous reports a key that servers could read differently: it is repeated, or in
	// a form that servers interpret in different ways.
	ErrAmbiguous = errors.New("key is ambiguous")
	// ErrMismatch reports that two parts of a request that must have the same key have
	// different ones.
	ErrMismatch = errors.New("key differs from its other copy")
	// ErrBodyTooLarge reports a body that is too long to be buffered for a key.
	// Message.Body returns it.
	ErrBodyTooLarge = errors.New("body too large for its key to be read")
	// ErrNoVerificationKeys reports that there are no keys to verify tokens, because their
	// source has not replied yet. It is not an error of the client.
	ErrNoVerificationKeys = errors.New("no keys to verify tokens with")
)
