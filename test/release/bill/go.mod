// Writes the bill of materials and the licences of a binary. It is a module of its own,
// so that building an image needs no other tool of a release.
module github.com/weir-proxy/weir/test/release/bill

go 1.26.0

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	golang.org/x/mod v0.41.0
)
