package org.bertzoo.sample

import android.content.Context
import android.content.res.AssetManager
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel
import com.google.mediapipe.tasks.text.textclassifier.TextClassifier
import com.google.mediapipe.tasks.text.textembedder.TextEmbedder

/** A file in the app's assets; the functions block, so call them on a thread of their own. */
interface Model : AutoCloseable {
    /** Returns each label's probability, the largest first. */
    fun classify(text: String): List<Pair<String, Float>>

    /** Returns the text's vector. */
    fun embed(text: String): FloatArray

    /** Returns the entities in a text of any length. */
    fun entities(text: String): List<Entity>
}

/** A file of `bertzoo convert --to=litert`: tokenises in Kotlin, runs the shortest signature that holds the text. */
class LiteRtModel(assets: AssetManager, file: String) : Model {
    private val json = assets.text("$file.json")
    private val vocabulary = assets.text("$file.files/vocab.txt")
    private val info = ModelInfo(json, vocabulary)
    private val finder by lazy { EntityFinder(json, vocabulary) }
    private val model = CompiledModel.create(assets, file, CompiledModel.Options(Accelerator.CPU))

    override fun classify(text: String) = info.probabilities(run(info.row(text), "logits"))

    override fun embed(text: String) = run(info.row(text), "embedding")

    override fun entities(text: String): List<Entity> {
        val rows = finder.rows(text)
        return finder.entities(rows, rows.windows.map { run(info.row(it.ids), finder.output) })
    }

    private fun run(row: Row, name: String): FloatArray {
        val inputs = row.inputs.mapValues { (input, _) -> model.createInputBuffer(input, row.signature) }
        val output = model.createOutputBuffer(name, row.signature)
        try {
            for ((input, values) in row.inputs) inputs.getValue(input).writeInt(values)
            model.run(inputs, mapOf(name to output), row.signature)
            return output.readFloat()
        } finally {
            for (buffer in inputs.values + output) buffer.close()
        }
    }

    override fun close() = model.close()
}

/**
 * A file of `bertzoo convert --to=mediapipe`: MediaPipe tokenises, with the vocabulary and labels in the file.
 *
 * MediaPipe's tokenizer keeps accents and control characters, so this class removes them first. If the model keeps
 * accents (`strip_accents` in the JSON beside the file), set stripAccents = false.
 */
class MediaPipeModel(context: Context, file: String) : Model {
    private val classifier = lazy { TextClassifier.createFromFile(context, file) }
    private val embedder = lazy { TextEmbedder.createFromFile(context, file) }

    override fun classify(text: String): List<Pair<String, Float>> =
        classifier.value.classify(prepare(text)).classificationResult().classifications().first().categories()
            .map { it.categoryName() to it.score() }
            .sortedByDescending { it.second }

    override fun embed(text: String): FloatArray =
        embedder.value.embed(prepare(text)).embeddingResult().embeddings().first().floatEmbedding()

    override fun entities(text: String): List<Entity> =
        error("MediaPipe's tasks find no entities. Convert the model with --to=litert.")

    private fun prepare(text: String) = normalize(text, lowercase = true, stripAccents = true, splitChinese = true)

    override fun close() {
        if (classifier.isInitialized()) classifier.value.close()
        if (embedder.isInitialized()) embedder.value.close()
    }
}

fun AssetManager.text(name: String) = open(name).bufferedReader().use { it.readText() }
