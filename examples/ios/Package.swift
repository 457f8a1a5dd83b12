// swift-tools-version:5.9
import PackageDescription

let package = Package(
    name: "BertText",
    platforms: [.iOS(.v16), .macOS(.v13)],
    products: [.library(name: "BertText", targets: ["BertText"])],
    targets: [
        .target(name: "BertText"),
        .testTarget(name: "BertTextTests", dependencies: ["BertText"]),
    ]
)
