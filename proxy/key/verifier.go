package key

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
)

// minRSA is the minimum size of an RSA key in bits (RFC 7518 section 3.3).
const minRSA = 2048

// A verifier is a key and the algorithms for which it may be used, whatever a token says
// about its algorithm: a public key is never used as an HMAC secret.
type verifier struct {
	id      string // "" fits any
	methods []string
	key     any
}

func hmacMethods() []string { return []string{"HS256", "HS384", "HS512"} }

func rsaMethods() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
}

// fits reports whether v may verify a token with this key id and algorithm.
func (v verifier) fits(id, method string) bool {
	return (id == "" || v.id == "" || v.id == id) && slices.Contains(v.methods, method)
}

// publicKey returns the verifier for a key.
func publicKey(key any) (verifier, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSA {
			return verifier{}, fmt.Errorf("an RSA key of %d bits; it needs at least %d", k.N.BitLen(), minRSA)
		}
		return verifier{methods: rsaMethods(), key: k}, nil
	case *ecdsa.PublicKey:
		switch k.Curve.Params().BitSize {
		case 256:
			return verifier{methods: []string{"ES256"}, key: k}, nil
		case 384:
			return verifier{methods: []string{"ES384"}, key: k}, nil
		case 521:
			return verifier{methods: []string{"ES512"}, key: k}, nil
		}
	case ed25519.PublicKey:
		return verifier{methods: []string{"EdDSA"}, key: k}, nil
	}
	return verifier{}, fmt.Errorf("a key of the kind %T; give RSA, P-256, P-384, P-521 or Ed25519", key)
}

// pemKeys parses all keys of a PEM file.
func pemKeys(text []byte) ([]verifier, error) {
	var keys []verifier
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		key, err := pemKey(block)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", block.Type, err)
		}
		v, err := publicKey(key)
		if err != nil {
			return nil, err
		}
		keys = append(keys, v)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("no public key; give a PEM file that begins with -----BEGIN PUBLIC KEY-----")
	}
	return keys, nil
}

func pemKey(block *pem.Block) (any, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return certificate.PublicKey, nil
	}
	return nil, fmt.Errorf("no public key; keep private keys away, and give the public one")
}
