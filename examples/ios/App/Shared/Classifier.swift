import Foundation

/// Classifies texts on the phone.
protocol Classifier: Actor {
    /// Returns each label's probability, the largest first.
    func classify(_ text: String) throws -> [(label: String, share: Float)]
}

/// Returns the place of a file in the app's folder Models.
func modelFile(_ name: String) -> URL {
    Bundle.main.bundleURL.appendingPathComponent("Models").appendingPathComponent(name)
}
